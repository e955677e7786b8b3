//! Operations against a kernel that answers what the test says: short, interrupted, failed.

use super::*;

fn file(content: &[u8]) -> (tempfile::TempDir, Arc<OpenFile>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("file");
    std::fs::write(&path, content).expect("write");
    let file = File::options().read(true).write(true).open(&path).expect("open");
    (folder, Arc::new(OpenFile::new(file, path)))
}

fn buffers(texts: &[&'static str]) -> Vec<Bytes> {
    texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect()
}

/// The write that `operation` wants next: offset and content.
fn wanted(operation: &mut Operation) -> (u64, String) {
    match operation.step().0 {
        Step::Write { slices, offset, .. } => {
            let bytes = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            (offset, String::from_utf8(bytes).expect("text"))
        }
        _ => panic!("not a write"),
    }
}

#[test]
fn a_short_read_goes_on_until_the_end_of_the_file() {
    let (_folder, file) = file(b"");
    let (operation, mut result) = Operation::read(&file, vec![0; 10], 100);
    let mut operation = operation.start().expect("something to read");
    for (answer, text, at) in [(4, "abcd", 100), (3, "efg", 104)] {
        match operation.step().0 {
            Step::Read { buffer, offset } => {
                assert_eq!((offset, buffer.len() as u64), (at, 110 - at));
                buffer[..answer].copy_from_slice(text.as_bytes());
            }
            _ => panic!("not a read"),
        }
        operation = operation.advance(Ok(answer)).expect("more to read");
    }
    assert!(operation.advance(Ok(0)).is_none(), "the end of the file");
    let (read, buffer) = result.try_recv().expect("answered");
    assert_eq!(read.expect("read"), 7);
    assert_eq!(buffer, b"abcdefg\0\0\0");
}

#[test]
fn a_short_write_goes_on_where_it_stopped() {
    let (_folder, file) = file(b"");
    let (operation, mut result) = Operation::write(&file, buffers(&["abc", "", "de", "f", ""]), 50);
    let mut operation = operation.start().expect("something to write");
    for (answer, at, rest) in [(1, 50, "abcdef"), (2, 51, "bcdef"), (1, 53, "def")] {
        assert_eq!(wanted(&mut operation), (at, rest.to_owned()));
        operation = operation.advance(Ok(answer)).expect("more to write");
    }
    assert_eq!(wanted(&mut operation), (54, "ef".to_owned()));
    assert!(operation.advance(Ok(2)).is_none());
    result.try_recv().expect("answered").expect("written");
}

#[test]
fn a_flushed_write_ends_with_its_flush() {
    let (_folder, file) = file(b"");
    let (operation, mut result) = Operation::write_flushed(&file, buffers(&["abc", "de"]), 50);
    let mut operation = operation.start().expect("something to write");
    assert!(matches!(operation.step().0, Step::Write { then_flush: true, .. }));
    // Short: whatever the kernel says of the flush, it comes after the rest.
    let mut operation = operation.advance_flushed(Ok(2), Err(ErrorKind::Other.into())).expect("more to write");
    assert_eq!(wanted(&mut operation), (52, "cde".to_owned()));
    let mut operation = operation.advance(Ok(3)).expect("to be flushed");
    assert!(matches!(operation.step().0, Step::Flush));
    assert!(operation.advance(Ok(0)).is_none());
    result.try_recv().expect("answered").expect("written and flushed");

    let (operation, mut result) = Operation::write_flushed(&file, buffers(&["abc"]), 0);
    let operation = operation.start().expect("something to write");
    assert!(operation.advance_flushed(Ok(3), Err(ErrorKind::Other.into())).is_none());
    result.try_recv().expect("answered").expect_err("the flush failed");
}

#[test]
fn a_flushed_write_of_many_buffers_is_flushed_after_the_last_call() {
    let (_folder, file) = file(b"");
    let (operation, _result) =
        Operation::write_flushed(&file, vec![Bytes::from_static(b"x"); BUFFERS_PER_CALL_MAX + 1], 0);
    let mut operation = operation.start().expect("something to write");
    assert!(matches!(operation.step().0, Step::Write { then_flush: false, .. }));
    let mut operation = operation.advance(Ok(BUFFERS_PER_CALL_MAX)).expect("one more");
    assert!(matches!(operation.step().0, Step::Write { then_flush: true, .. }));
}

#[test]
fn an_interrupted_call_is_made_again() {
    let (_folder, file) = file(b"");
    let (operation, mut result) = Operation::write(&file, buffers(&["abc"]), 0);
    let mut operation = operation.start().expect("something to write");
    for kind in [ErrorKind::Interrupted, ErrorKind::WouldBlock] {
        operation = operation.advance(Err(kind.into())).expect("again");
        assert_eq!(wanted(&mut operation), (0, "abc".to_owned()));
    }
    assert!(result.try_recv().is_err(), "no answer yet");
}

#[test]
fn a_failed_call_ends_the_operation_and_gives_the_buffer_back() {
    let (_folder, file) = file(b"");
    let (operation, mut result) = Operation::read(&file, vec![7; 3], 0);
    let operation = operation.start().expect("something to read");
    assert!(operation.advance(Err(io::Error::from_raw_os_error(5))).is_none());
    let (read, buffer) = result.try_recv().expect("answered");
    assert_eq!(read.expect_err("failed").raw_os_error(), Some(5));
    assert_eq!(buffer, [7; 3]);
}

#[test]
fn a_write_that_the_kernel_takes_nothing_of_fails() {
    let (_folder, file) = file(b"");
    let (operation, mut result) = Operation::write(&file, buffers(&["abc"]), 0);
    assert!(operation.start().expect("something to write").advance(Ok(0)).is_none());
    assert_eq!(result.try_recv().expect("answered").expect_err("failed").kind(), ErrorKind::WriteZero);
}

#[test]
fn a_call_takes_no_more_buffers_than_the_kernel_allows() {
    let (_folder, file) = file(b"");
    let count = 2 * BUFFERS_PER_CALL_MAX + 3;
    let (operation, mut result) = Operation::write(&file, vec![Bytes::from_static(b"x"); count], 0);
    let mut next = operation.start();
    let mut calls = Vec::new();
    while let Some(mut operation) = next {
        let (offset, text) = wanted(&mut operation);
        calls.push((offset, text.len()));
        next = operation.advance(Ok(text.len()));
    }
    assert_eq!(calls, [(0, 1024), (1024, 1024), (2048, 3)]);
    result.try_recv().expect("answered").expect("written");
}

#[test]
fn appends_take_turns_and_learn_the_end_when_theirs_comes() {
    let (_folder, file) = file(b"0123456789");
    let (first, mut first_result) = Operation::append(&file, buffers(&["abc"]));
    let (second, mut second_result) = Operation::append(&file, buffers(&["de"]));
    let (third, mut third_result) = Operation::append(&file, buffers(&["f"]));
    assert!(second.is_none() && third.is_none(), "one append at a time");
    let mut first = first.expect("nothing else under way").start().expect("something to write");
    assert_eq!(wanted(&mut first), (10, "abc".to_owned()));
    // The first fails after a part of it: the second starts where the file ends now.
    file.file.set_len(12).expect("as if two bytes had been written");
    let mut second = first.advance(Err(ErrorKind::StorageFull.into())).expect("the second's turn");
    assert_eq!(first_result.try_recv().expect("answered").expect_err("failed").kind(), ErrorKind::StorageFull);
    assert_eq!(wanted(&mut second), (12, "de".to_owned()));
    file.file.set_len(14).expect("as if written");
    let third = second.advance(Ok(2)).expect("the third's turn");
    assert_eq!(second_result.try_recv().expect("answered").expect("written"), 12);
    assert!(third.advance(Ok(1)).is_none());
    assert_eq!(third_result.try_recv().expect("answered").expect("written"), 14);
    let (again, _result) = Operation::append(&file, buffers(&["g"]));
    assert!(again.is_some(), "no append is under way");
}

#[test]
fn what_nobody_waits_for_is_not_started() {
    let (_folder, file) = file(b"");
    let (read, result) = Operation::read(&file, vec![0; 3], 0);
    drop(result);
    assert!(read.start().is_none());

    let (first, first_result) = Operation::append(&file, buffers(&["a"]));
    let (_, dropped) = Operation::append(&file, buffers(&["b"]));
    let (_, last_result) = Operation::append(&file, buffers(&["c"]));
    drop((first_result, dropped));
    let mut last = first.expect("its turn").start().expect("the last one's turn: the others are skipped");
    assert_eq!(wanted(&mut last).1, "c");
    assert!(last.advance(Ok(1)).is_none());
    drop(last_result);
}
