use super::*;

#[test]
fn hi10_other_names_are_reported_and_left_alone() {
    let mut index = Index::new(10, 4);
    index.build(1, NOW, "k");
    let dir = index.dir.path().join("index");
    fs::write(dir.join("2026112107351332"), b"short name").unwrap();
    fs::write(dir.join("2026112107351332x"), b"not a number").unwrap();
    fs::create_dir(dir.join("20261121073513999")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.join("20261121073513998")).unwrap();
    let findings = index.reload();
    assert_eq!(findings.len(), 4);
    assert!(findings.iter().all(|finding| finding.kind == CorruptionKind::FileName));
    assert_eq!(index.raw("k", 0, EVER, 10), [1]);
    index.service.remove_from_name(0).unwrap();
    assert_eq!(index.names().len(), 4);
}

/// Four keys, and a newest file that ends before it begins.
fn out_of_order() -> Index {
    let mut index = Index::new(10, 3);
    for offset in 1..=4 {
        index.build(offset, NOW, "k");
    }
    index.service.drain().unwrap();
    let newest = index.service.run().files().pop().unwrap();
    let raw = fs::OpenOptions::new().write(true).open(&newest.path).unwrap();
    raw.write_all_at(&(NOW - 5).to_be_bytes(), 8).unwrap();
    index
}

#[test]
fn hi06_a_header_out_of_order_is_reported_and_hides_no_file() {
    let index = out_of_order();
    let answer = index.service.run().query_offsets(&[], b"T", b"k", (NOW - 100, EVER), 10).unwrap();
    assert_eq!(answer.offsets, [4, 3, 2, 1]);
    let kinds: Vec<_> = answer.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [CorruptionKind::IndexHeader]);
    // That file alone holds enough, so nothing depends on its times.
    let answer = index.service.run().query_offsets(&[], b"T", b"k", (NOW - 100, EVER), 2).unwrap();
    assert_eq!((answer.offsets, answer.findings), (vec![4, 3], vec![]));
}

#[test]
fn an_answer_has_the_last_update_of_the_newest_file() {
    let index = out_of_order();
    let answer = index.service.run().query_offsets(&[], b"T", b"k", (NOW, EVER), 10).unwrap();
    assert_eq!((answer.offsets.len(), answer.findings.len()), (4, 1));
    assert_eq!(answer.last_update_physical_offset, 4);
    let empty = Index::new(10, 3);
    let answer = empty.service.run().query_offsets(&[], b"T", b"k", (NOW, EVER), 10).unwrap();
    assert_eq!((answer.offsets.len(), answer.findings.len()), (0, 0));
    assert_eq!((answer.last_update_timestamp_ms, answer.last_update_physical_offset), (0, 0));
}

#[test]
fn an_unusable_file_is_reported_and_the_others_are_used() {
    let mut index = Index::new(10, 3);
    for offset in 1..=6 {
        index.build(offset, NOW, "k");
    }
    index.service.drain().unwrap();
    let middle = index.service.run().files()[1].path.clone();
    fs::OpenOptions::new().write(true).open(&middle).unwrap().set_len(99).unwrap();
    let findings = index.reload();
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].kind, CorruptionKind::FileLength);
    assert_eq!(findings[0].path.as_ref(), Some(&middle));
    assert_eq!(index.candidates("k", 0, EVER), [6, 5, 2, 1]);
    let removed = index.service.remove_from_unusable().unwrap();
    assert_eq!(removed.len(), 2);
    assert_eq!(removed[1], middle);
    assert_eq!(index.service.last_keyed_offset().unwrap(), Some(2));
    for offset in 1..=6 {
        index.build(offset, NOW, "k");
    }
    assert_eq!(index.candidates("k", 0, EVER), [6, 5, 4, 3, 2, 2, 1]);
}

#[test]
fn an_unusable_file_stays_known_when_a_newer_one_goes() {
    let mut index = Index::new(10, 3);
    for offset in 1..=6 {
        index.build(offset, NOW, "k");
    }
    index.service.drain().unwrap();
    let files = index.service.run().files();
    for file in &files[1..] {
        fs::OpenOptions::new().write(true).open(&file.path).unwrap().set_len(99).unwrap();
    }
    assert_eq!(index.reload().len(), 2);
    let known = |index: &Index| {
        index.service.run().unusable().iter().map(|file| file.name).collect::<Vec<_>>()
    };
    assert_eq!(known(&index), [files[1].name, files[2].name]);
    assert_eq!(index.service.remove_from_name(files[2].name).unwrap().len(), 1);
    assert_eq!(known(&index), [files[1].name]);
    assert_eq!(index.service.remove_from_unusable().unwrap().len(), 1);
    assert_eq!(known(&index), [0; 0]);
    assert_eq!(index.candidates("k", 0, EVER), [2, 1]);
}

#[test]
fn damage_met_by_a_query_hides_only_its_file() {
    let mut index = Index::new(10, 3);
    for offset in 1..=6 {
        index.build(offset, NOW, "k");
    }
    index.service.drain().unwrap();
    let middle = index.service.run().files()[1].path.clone();
    fs::OpenOptions::new().write(true).open(&middle).unwrap().set_len(99).unwrap();
    let answer = index.service.run().query_offsets(&[], b"T", b"k", (0, EVER), 10).unwrap();
    assert_eq!(answer.offsets, [6, 5, 2, 1]);
    assert_eq!(answer.findings.len(), 1);
    let mut candidates = index.service.run().candidates(b"T", b"k", 0, EVER);
    let (mut found, mut findings) = (Vec::new(), Vec::new());
    let mut damaged = Vec::new();
    while candidates.next_file(&mut findings).unwrap() {
        assert!(!candidates.next_chunk(10, &mut found, &mut findings).unwrap());
        if damaged.len() < findings.len() {
            damaged.push(candidates.span());
        }
    }
    let offsets: Vec<_> = found.iter().map(|found| found.physical_offset).collect();
    assert_eq!(offsets, [6, 5, 2, 1]);
    assert_eq!(findings.len(), 1);
    assert_eq!(damaged, [(2, Some(5))]);
}

#[test]
fn hm01_a_file_cut_short_between_queries_hides_only_itself() {
    let mut index = Index::new(10, 3);
    for offset in 1..=6 {
        index.build(offset, NOW, "k");
    }
    index.service.drain().unwrap();
    let run = index.service.run();
    let ask = || run.query_offsets(&[], b"T", b"k", (0, EVER), 10).unwrap();
    for (file, left) in run.files().iter().zip([[6, 5, 4, 3], [6, 5, 2, 1], [4, 3, 2, 1]]) {
        assert_eq!(ask().offsets, [6, 5, 4, 3, 2, 1]);
        let whole = fs::read(&file.path).unwrap();
        let raw = fs::OpenOptions::new().write(true).open(&file.path).unwrap();
        raw.set_len(99).unwrap();
        let answer = ask();
        assert_eq!(answer.offsets, left);
        let found: Vec<_> = answer.findings.iter().map(|one| (one.kind, &one.path)).collect();
        assert_eq!(found, [(CorruptionKind::FileLength, &Some(file.path.clone()))]);
        raw.write_all_at(&whole, 0).unwrap();
    }
}
