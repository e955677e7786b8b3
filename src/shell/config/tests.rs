use super::*;

const GOOD: &str = "\
# The first of four.
role: server
data_dir: /var/lib/steadfast
listen: 127.0.0.1:7401
masters:
  1: 127.0.0.1:7301
  2: localhost:7302
  3: '[::1]:7303'
secret_file: secret
log: info,steadfast::node=debug
io: io_uring
advertise: example.org:7401
segment_size: 64 MiB
memory: 2GiB
disk_reserve: 1GiB
compaction_rate: 8 MiB
stop_time_max: 20 s
";

#[test]
fn every_key_is_read() {
    let file = parse("server.yaml", GOOD).unwrap();
    assert_eq!((file.role, file.id), (Some(Role::Server), None));
    assert_eq!(file.log.as_deref(), Some("info,steadfast::node=debug"));
    let settings = file.settings;
    assert_eq!(settings.data_dir, Some("/var/lib/steadfast".into()));
    assert_eq!(settings.listen.as_deref(), Some("127.0.0.1:7401"));
    assert_eq!(settings.master_map()[&3], "[::1]:7303");
    assert_eq!(settings.masters.len(), 3);
    assert_eq!(settings.secret_file, Some("secret".into()));
    assert_eq!(settings.io, Some(Io::IoUring));
    assert_eq!(file.server.advertise.as_deref(), Some("example.org:7401"));
    assert_eq!((file.server.segment_size, file.server.disk_reserve), (Some(64 << 20), Some(1 << 30)));
    assert_eq!(file.server.compaction_rate, Some(8 << 20));
    assert_eq!(file.server.memory, Some(2 << 30));
    assert!(memory("1MiB").is_err_and(|error| error.contains("too little")));
    assert_eq!(settings.stop_time_max, Some(Duration::from_secs(20)));
    assert_eq!(parse("master.yaml", "role: master\nid: 2\n").unwrap().id, Some(2));
}

#[test]
fn a_flag_wins_over_the_file() {
    let file = parse("server.yaml", GOOD).unwrap().settings;
    let flags = Settings { listen: Some("127.0.0.1:1".into()), ..Settings::default() };
    let both = flags.or(file.clone());
    assert_eq!(both.listen.as_deref(), Some("127.0.0.1:1"));
    assert_eq!(Settings { listen: file.listen.clone(), ..both }, file);
}

/// Each broken file is refused with the line and the words that help.
#[test]
fn broken_files_are_refused_with_file_line_and_key() {
    let broken: [(&str, &str); 24] = [
        ("role: server\nlisen: 127.0.0.1:7401\n", "c.yaml:2: unknown key 'lisen': did you mean 'listen'?"),
        ("data-dir: x\n", "c.yaml:1: unknown key 'data-dir': did you mean 'data_dir'?"),
        ("replication: 3\n", "c.yaml:1: unknown key 'replication': the keys are role, id, data_dir,"),
        ("role: server\n\nio: auto\nrole: master\n", "c.yaml:4: key 'role': stands here again, first on line 1"),
        ("masters:\n  1: a:1\n  1: b:1\n", "c.yaml:3: key '1': stands here again, first on line 2"),
        ("", "c.yaml:1: the file is empty"),
        ("\n# nothing but this\n", "c.yaml:1: the file is empty"),
        ("role: server\n\tlisten: 127.0.0.1:7401\n", "c.yaml:2: a tab indents the line"),
        ("masters:\n\t1: a:1\n", "c.yaml:2: a tab indents the line"),
        ("listen: 7401\n", "c.yaml:1: key 'listen': is a whole number, and an address is needed (quotes make it text)"),
        ("listen: 127.0.0.1\n", "c.yaml:1: key 'listen': '127.0.0.1' is no address: write HOST:PORT"),
        ("listen: 127.0.0.1:99999\n", "c.yaml:1: key 'listen': '127.0.0.1:99999' is no address: the port is"),
        ("listen: ::1:7401\n", "put an IPv6 host in brackets"),
        ("data_dir: [a, b]\n", "c.yaml:1: key 'data_dir': is a list, and a path is needed"),
        ("data_dir:\n", "c.yaml:1: key 'data_dir': is empty, and a path is needed"),
        ("masters: 127.0.0.1:7301\n", "c.yaml:1: key 'masters': is text, and a map of the masters' numbers"),
        ("masters:\n  one: a:1\n", "c.yaml:1: key 'masters': master one (line 2): 'one' is no master's number"),
        (
            "stop_time_max: 30 parsec\n",
            "c.yaml:1: key 'stop_time_max': '30 parsec' is no time: write a whole number and ms,",
        ),
        ("stop_time_max: 30\n", "c.yaml:1: key 'stop_time_max': '30' is no time"),
        ("segment_size: 64 MB\n", "c.yaml:1: key 'segment_size': '64 MB' is no size: write a whole number and B, KiB,"),
        ("disk_reserve: true\n", "c.yaml:1: key 'disk_reserve': is true or false, and a size is needed"),
        ("role: leader\n", "c.yaml:1: key 'role': 'leader' is no role: write master or server"),
        ("id: 3\nrole: server\n", "c.yaml:1: key 'id': belongs to a master, and this is a server"),
        ("- role\n- server\n", "c.yaml:1: the file is a list"),
    ];
    for (text, expected) in broken {
        let error = parse("c.yaml", text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?} gave {error:?}, not {expected:?}");
    }
}

#[test]
fn what_is_not_yaml_is_refused_with_its_line() {
    for text in [
        "role: server\nlisten: [1,\n",
        "role: server\nlisten: 'a\n",
        "role: {\n",
        "a: b: c\n",
        "role: server\n---\nid: 3\n",
    ] {
        let error = parse("c.yaml", text).unwrap_err();
        assert!(!error.what.contains('\n') && error.line > 0, "{text:?} gave {error}");
    }
}

#[test]
fn times_carry_their_unit() {
    assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
    assert_eq!(duration("2 min"), Ok(Duration::from_secs(120)));
    for bad in ["", "5", "s", "-1s", "1.5s", "99999999999999999999s", "5 S"] {
        assert!(duration(bad).is_err(), "{bad}");
    }
}
