//! Promises of [`File`].

use super::{Chances, Check, Context, checks, join, poll_once_and_drop, read, read_all, write};
use crate::disk::{File, OpenMode};
use bytes::Bytes;
use std::io::ErrorKind;
use std::sync::Arc;

pub(super) const CHECKS: &[(&str, Check)] = checks![
    a_read_ends_at_the_end_of_the_file,
    a_read_gives_its_buffer_back,
    a_read_that_answers_at_once_is_right,
    a_write_at_once_is_done_or_not_begun,
    a_write_is_read_back_through_every_handle,
    a_write_past_the_end_leaves_zeros,
    a_write_puts_all_its_buffers_one_after_the_other,
    a_write_of_nothing_changes_nothing,
    a_handle_opened_to_read_refuses_writes,
    appends_go_to_the_end,
    appends_are_not_interleaved,
    truncate_cuts_and_grows_with_zeros,
    allocate_keeps_the_length,
    flushes_succeed,
    a_write_with_its_flush_is_both,
    large_io_is_whole,
    many_operations_at_once_stay_apart,
    dropped_operations_happen_or_not,
    a_dropped_append_never_overlaps_the_next,
    handles_dropped_under_io_do_no_harm,
];

async fn a_read_ends_at_the_end_of_the_file(c: Context) {
    let file = c.new_file("read_end").await;
    assert_eq!(read(&file, 0, 10).await, b"", "an empty file");
    write(&file, 0, "0123456789").await;
    assert_eq!(file.len().await.expect("len"), 10);
    assert_eq!(read(&file, 0, 10).await, b"0123456789", "exactly");
    assert_eq!(read(&file, 3, 4).await, b"3456", "in the middle");
    assert_eq!(read(&file, 7, 100).await, b"789", "short at the end");
    assert_eq!(read(&file, 10, 5).await, b"", "at the end");
    assert_eq!(read(&file, 1 << 40, 5).await, b"", "far past the end");
    assert_eq!(read(&file, 2, 0).await, b"", "into an empty buffer");
}

async fn a_read_gives_its_buffer_back(c: Context) {
    let file = c.new_file("read_buffer").await;
    write(&file, 0, "abc").await;
    let mut buffer = Vec::with_capacity(4096);
    buffer.resize(8, b'.');
    let address = buffer.as_ptr() as usize;
    let (result, buffer) = file.read_at(buffer, 1).await;
    assert_eq!(result.expect("read"), 2);
    assert_eq!(&buffer[..2], b"bc");
    assert_eq!((buffer.len(), buffer.capacity(), buffer.as_ptr() as usize), (8, 4096, address), "the same buffer");
}

async fn a_read_that_answers_at_once_is_right(c: Context) {
    let file = c.new_file("try_read").await;
    write(&file, 0, "0123456789").await;
    for (offset, len, expected) in
        [(0, 10, &b"0123456789"[..]), (4, 3, b"456"), (8, 5, b"89"), (10, 5, b""), (99, 5, b"")]
    {
        let mut buffer = vec![0; len];
        if let Some(result) = file.try_read_at(&mut buffer, offset) {
            let read = result.expect("read at once");
            assert_eq!(&buffer[..read], expected, "{len} bytes from {offset}");
        }
    }
}

async fn a_write_at_once_is_done_or_not_begun(c: Context) {
    let file = c.new_file("try_write").await;
    let mut expected = b"begun".to_vec();
    write(&file, 0, "begun").await;
    let mut chances = Chances(0x5EED_0007);
    for count in [1, 0, 3, 1500, 2, 1, 1, 40] {
        let buffers: Vec<Bytes> = (0..count).map(|_| chances.bytes(7).into()).collect();
        if let Some(result) = file.try_write_at(&buffers, expected.len() as u64) {
            result.expect("write at once");
            expected.extend_from_slice(&buffers.concat());
        }
        assert!(read_all(&file).await == expected, "{count} buffers");
    }
    let reader = c.open("try_write/file", OpenMode::Read).await;
    if let Some(result) = reader.try_write_at(&["x".into()], 0) {
        assert!(result.is_err(), "opened for reading");
    }
    assert!(read_all(&file).await == expected, "opened for reading");
}

async fn a_write_is_read_back_through_every_handle(c: Context) {
    let first = c.new_file("handles").await;
    let second = c.open("handles/file", OpenMode::Read).await;
    write(&first, 0, "one").await;
    assert_eq!(read_all(&second).await, b"one");
    write(&first, 1, "NE, two").await;
    assert_eq!(read_all(&second).await, b"oNE, two");
    let third = c.open("handles/file", OpenMode::Write).await;
    write(&third, 0, "O").await;
    assert_eq!(read_all(&first).await, b"ONE, two");
}

async fn a_write_past_the_end_leaves_zeros(c: Context) {
    let file = c.new_file("gap").await;
    write(&file, 0, "ab").await;
    write(&file, 10_000, "yz").await;
    let mut expected = vec![0; 10_002];
    expected[..2].copy_from_slice(b"ab");
    expected[10_000..].copy_from_slice(b"yz");
    assert!(read_all(&file).await == expected, "zeros between the writes");
}

async fn a_write_puts_all_its_buffers_one_after_the_other(c: Context) {
    let file = c.new_file("vectored").await;
    let mut chances = Chances(0x5EED_0001);
    for count in [1, 2, 7, 1023, 1024, 1025, 5000] {
        // Empty buffers at the start, at the end and between, whole runs of them too.
        let buffers: Vec<Bytes> = (0..count)
            .map(|_| {
                let len = if chances.below(3) == 0 { 0 } else { chances.below(40) as usize };
                chances.bytes(len).into()
            })
            .collect();
        let expected = buffers.concat();
        file.truncate(0).await.expect("truncate");
        file.write_at(buffers.clone(), 5).await.expect("write");
        assert!(read_all(&file).await[5..] == expected, "{count} buffers written");
        let offset = file.append(buffers).await.expect("append");
        assert_eq!(offset, 5 + expected.len() as u64);
        assert!(read_all(&file).await[offset as usize..] == expected, "{count} buffers appended");
    }
}

async fn a_write_of_nothing_changes_nothing(c: Context) {
    let file = c.new_file("nothing").await;
    write(&file, 0, "abc").await;
    file.write_at(vec![], 100).await.expect("write no buffers");
    file.write_at(vec![Bytes::new(), Bytes::new()], 100).await.expect("write empty buffers");
    assert_eq!(file.append(vec![]).await.expect("append no buffers"), 3);
    assert_eq!(file.append(vec![Bytes::new()]).await.expect("append an empty buffer"), 3);
    assert_eq!(read_all(&file).await, b"abc");
}

async fn a_handle_opened_to_read_refuses_writes(c: Context) {
    let file = c.new_file("read_only").await;
    write(&file, 0, "abc").await;
    let reader = c.open("read_only/file", OpenMode::Read).await;
    reader.write_at(vec!["x".into()], 0).await.expect_err("write through a reading handle");
    reader.append(vec!["x".into()]).await.expect_err("append through a reading handle");
    reader.truncate(1).await.expect_err("truncate through a reading handle");
    assert_eq!(read_all(&file).await, b"abc");
}

async fn appends_go_to_the_end(c: Context) {
    let file = c.new_file("append").await;
    assert_eq!(file.append(vec!["abc".into()]).await.expect("append"), 0);
    assert_eq!(file.append(vec!["d".into(), "ef".into()]).await.expect("append"), 3);
    write(&file, 8, "ij").await;
    assert_eq!(file.append(vec!["k".into()]).await.expect("append"), 10, "after a write that grew the file");
    file.truncate(2).await.expect("truncate");
    assert_eq!(file.append(vec!["C".into()]).await.expect("append"), 2, "after a cut");
    let other = c.open("append/file", OpenMode::Create).await;
    assert_eq!(other.append(vec!["D".into()]).await.expect("append"), 3, "through a new handle");
    assert_eq!(file.append(vec!["E".into()]).await.expect("append"), 4, "after another handle's append");
    assert_eq!(read_all(&file).await, b"abCDE");
}

/// Every append is in the file as one piece, at the offset it answered, and nothing else is.
async fn appends_are_not_interleaved(c: Context) {
    const WRITERS: u8 = 8;
    const EACH: usize = 25;
    let file = c.new_file("interleave").await;
    let tasks = (0..WRITERS).map(|writer| {
        let file = file.clone();
        c.env.spawn("append", async move {
            let mut chances = Chances(u64::from(writer) + 1);
            let mut pieces = Vec::new();
            for _ in 0..EACH {
                let lens: Vec<usize> = (0..4).map(|_| chances.below(3000) as usize).collect();
                let buffers = lens.iter().map(|len| vec![writer; *len].into()).collect();
                pieces.push((file.append(buffers).await.expect("append"), lens.iter().sum::<usize>(), writer));
            }
            pieces
        })
    });
    let mut pieces = join(tasks.collect()).await.concat();
    pieces.sort_unstable_by_key(|(offset, len, _)| (*offset, *len));
    let bytes = read_all(&file).await;
    let mut end = 0;
    for (offset, len, writer) in pieces {
        assert_eq!(offset, end, "the piece of writer {writer} starts where the one before ends");
        end += len as u64;
        let piece = &bytes[offset as usize..end as usize];
        assert!(piece.iter().all(|byte| *byte == writer), "{len} bytes at {offset} are of writer {writer} alone");
    }
    assert_eq!(bytes.len() as u64, end);
}

async fn truncate_cuts_and_grows_with_zeros(c: Context) {
    let file = c.new_file("truncate").await;
    write(&file, 0, vec![7; 10_000]).await;
    file.truncate(5_001).await.expect("cut");
    assert_eq!(read_all(&file).await, vec![7; 5_001]);
    file.truncate(20_000).await.expect("grow");
    let bytes = read_all(&file).await;
    assert_eq!(bytes.len(), 20_000);
    assert!(bytes[..5_001].iter().all(|byte| *byte == 7), "kept");
    assert!(bytes[5_001..].iter().all(|byte| *byte == 0), "zeros, not what had been there");
    file.truncate(0).await.expect("empty");
    assert_eq!(read_all(&file).await, b"");
}

async fn allocate_keeps_the_length(c: Context) {
    let file = c.new_file("allocate").await;
    write(&file, 0, "abc").await;
    for len in [1 << 20, 2, 0] {
        match file.allocate(len).await {
            Ok(()) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "allocate {len}: {error}"),
        }
        assert_eq!(read_all(&file).await, b"abc");
    }
    assert_eq!(file.append(vec!["d".into()]).await.expect("append"), 3, "appends ignore reserved space");
}

async fn flushes_succeed(c: Context) {
    let file = c.new_file("flush").await;
    file.sync_data().await.expect("flush an empty file");
    write(&file, 0, "abc").await;
    file.sync_data().await.expect("flush");
    let tasks = (0..20u64).map(|i| {
        let file = file.clone();
        c.env.spawn("flush", async move {
            write(&file, i * 4096, vec![i as u8; 4096]).await;
            file.sync_data().await.expect("flush beside others");
        })
    });
    join(tasks.collect()).await;
    c.env.disk().sync_dir("flush").await.expect("flush the folder");
    c.env.disk().sync_dir("").await.expect("flush the data folder");
}

async fn a_write_with_its_flush_is_both(c: Context) {
    let file = c.new_file("write_and_sync").await;
    file.write_and_sync(vec!["abc".into(), Bytes::new(), "de".into()], 0).await.expect("write and flush");
    file.write_and_sync(vec!["XYZ".into()], 2).await.expect("over the end");
    file.write_and_sync(vec![], 100).await.expect("nothing but a flush");
    assert_eq!(read_all(&file).await, b"abXYZ");
    // More buffers than one call takes.
    let many = vec![Bytes::from_static(b"0123456789"); 3000];
    file.write_and_sync(many, 1).await.expect("many buffers");
    assert_eq!(file.len().await.expect("len"), 30_001);
    assert_eq!(read(&file, 29_999, 10).await, b"89");
    let reader = c.open("write_and_sync/file", OpenMode::Read).await;
    reader.write_and_sync(vec!["x".into()], 0).await.expect_err("through a reading handle");
}

async fn large_io_is_whole(c: Context) {
    let file = c.new_file("large").await;
    let mut chances = Chances(0x5EED_0002);
    let block = chances.bytes(64 << 10);
    // 9 MiB whose blocks differ, in buffers that end nowhere in particular.
    let mut whole = Vec::new();
    for i in 0..144u64 {
        whole.extend_from_slice(&block);
        let at = whole.len() - 8;
        whole[at..].copy_from_slice(&i.to_le_bytes());
    }
    let bytes = Bytes::from(whole.clone());
    let cuts = [0, 1, 70_001, 3 << 20, (8 << 20) + 5, whole.len()];
    let buffers = cuts.windows(2).map(|cut| bytes.slice(cut[0]..cut[1])).collect();
    assert_eq!(file.append(buffers).await.expect("append"), 0);
    assert!(read_all(&file).await == whole, "read in one call");
    assert!(read(&file, 12_345, 5 << 20).await == whole[12_345..12_345 + (5 << 20)], "read from the middle");
    file.sync_data().await.expect("flush");
}

async fn many_operations_at_once_stay_apart(c: Context) {
    const BLOCK: usize = 3_000;
    let file = c.new_file("many").await;
    let writes = (0..300u64).map(|i| {
        let file = file.clone();
        c.env.spawn("write", async move { write(&file, i * BLOCK as u64, vec![i as u8; BLOCK]).await })
    });
    join(writes.collect()).await;
    let reads = (0..600u64).map(|i| {
        let (file, block) = (file.clone(), i * 7 % 300);
        c.env.spawn("read", async move {
            let bytes = read(&file, block * BLOCK as u64, BLOCK).await;
            assert!(bytes == vec![block as u8; BLOCK], "block {block}");
        })
    });
    join(reads.collect()).await;
}

/// Reads and writes whose futures are dropped before their first poll or after it: each block holds what it held or what
/// a dropped write carried, and operations that were kept are not disturbed. Kept blocks are even and dropped ones odd: a
/// dropped write may happen after a later one.
async fn dropped_operations_happen_or_not(c: Context) {
    const BLOCK: usize = 2_000;
    const BLOCKS: u64 = 16;
    let file = c.new_file("dropped").await;
    write(&file, 0, vec![1; BLOCK * BLOCKS as usize]).await;
    let mut chances = Chances(0x5EED_0003);
    for round in 2..40u8 {
        let kept = chances.below(BLOCKS / 2) * 2;
        for _ in 0..12 {
            let block = chances.below(BLOCKS / 2) * 2 + 1;
            let offset = block * BLOCK as u64;
            match chances.below(4) {
                0 => drop(file.read_at(vec![0; BLOCK], offset)),
                1 => poll_once_and_drop(file.read_at(vec![0; BLOCK], offset)).await,
                2 => drop(file.write_at(vec![vec![round; BLOCK].into()], offset)),
                _ => poll_once_and_drop(file.write_at(vec![vec![round; BLOCK].into()], offset)).await,
            }
        }
        write(&file, kept * BLOCK as u64, vec![round; BLOCK]).await;
        let bytes = read(&file, kept * BLOCK as u64, BLOCK).await;
        assert!(bytes == vec![round; BLOCK], "round {round}: the write that was awaited");
    }
    settle(&file).await;
    let bytes = read_all(&file).await;
    assert_eq!(bytes.len(), BLOCK * BLOCKS as usize);
    assert!(bytes.iter().all(|byte| (1..40).contains(byte)), "no byte that nobody wrote");
}

/// Whatever dropped appends did, those that were awaited are whole and where they said.
async fn a_dropped_append_never_overlaps_the_next(c: Context) {
    let file = c.new_file("dropped_append").await;
    let mut chances = Chances(0x5EED_0004);
    let mut kept = Vec::new();
    for round in 0..60u8 {
        let len = 1 + chances.below(20_000) as usize;
        let dropped = file.append(vec![vec![0xDD; len].into(), vec![0xDD; len].into()]);
        if chances.below(2) == 0 {
            poll_once_and_drop(dropped).await;
        } else {
            drop(dropped);
        }
        let offset = file.append(vec![vec![round; 100].into()]).await.expect("append");
        kept.push((offset, round));
    }
    settle(&file).await;
    let mut bytes = read_all(&file).await;
    for (offset, round) in kept {
        let piece = &mut bytes[offset as usize..offset as usize + 100];
        assert!(piece.iter().all(|byte| *byte == round), "append {round} at {offset}");
        piece.fill(0xDD);
    }
    assert!(bytes.iter().all(|byte| *byte == 0xDD), "nothing but dropped appends between");
}

async fn handles_dropped_under_io_do_no_harm(c: Context) {
    c.empty_folder("dropped_handles").await;
    let mut chances = Chances(0x5EED_0005);
    let mut tasks = Vec::new();
    for i in 0..60u8 {
        let path = format!("dropped_handles/{i}");
        let file = c.open(&path, OpenMode::CreateNew).await;
        let write = file.write_at(vec![vec![i; 5_000].into(), vec![i; 5_000].into()], 0);
        match chances.below(4) {
            0 => drop(write),
            1 => poll_once_and_drop(write).await,
            2 => write.await.expect("write"),
            _ => tasks.push(c.env.spawn("write", async move { write.await.expect("write without its handle") })),
        }
        drop(file);
        if chances.below(4) == 0 {
            c.env.disk().remove(&path).await.expect("remove under I/O");
        }
    }
    join(tasks).await;
    for entry in c.env.disk().list("dropped_handles").await.expect("list") {
        let file = c.open(&format!("dropped_handles/{}", entry.name), OpenMode::Write).await;
        settle(&file).await;
        let bytes = read_all(&file).await;
        let written = entry.name.parse::<u8>().expect("a number");
        assert!(bytes.len() <= 10_000, "file {written} has {} bytes", bytes.len());
        assert!(bytes.iter().all(|byte| *byte == written), "file {written} holds its own bytes");
    }
}

/// Gives operations whose futures were dropped the time to end: each wait is for a flush.
async fn settle(file: &Arc<dyn File>) {
    let mut len = None;
    for _ in 0..20 {
        file.sync_data().await.expect("flush");
        let now = file.len().await.expect("len");
        if len.replace(now) == Some(now) {
            return;
        }
    }
}
