use super::*;

#[test]
fn hi01_impossible_counts_are_refused_on_opening() {
    let (_dir, file) = create(3, 8);
    for count in [-1, i32::MIN, 9, i32::MAX] {
        overwrite(&file, 36, count);
        for how in [IndexOpen::Read, IndexOpen::ReadMapped, IndexOpen::Write] {
            let opened = IndexFile::open(&Os, file.path(), layout(3, 8), how);
            let Err(Error::Corrupt(corruption)) = opened else { panic!("count {count}") };
            assert_eq!((corruption.kind, corruption.offset), (CorruptionKind::IndexHeader, 36));
        }
    }
    for count in [8, 0] {
        overwrite(&file, 36, count);
        IndexFile::open(&Os, file.path(), layout(3, 8), IndexOpen::Read).unwrap();
    }
}

fn select_damaged(file: &IndexFile, hash: i32) -> (Vec<i64>, Vec<CorruptionKind>) {
    let mut answers = readers(file)
        .into_iter()
        .flat_map(|reader| {
            let (mut found, mut findings) = (Vec::new(), Vec::new());
            reader.select(hash, 0, EVER, 10, &mut found, &mut findings).unwrap();
            let (mut lists, mut others) = (OffsetLists::default(), Vec::new());
            reader.select_many(&[hash], 0, EVER, 10, &mut lists, &mut others).unwrap();
            [(found, findings), (lists.offsets, others)]
        })
        .collect::<Vec<_>>();
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    let (found, findings) = answers.pop().unwrap();
    (found, findings.iter().map(|corruption| corruption.kind).collect())
}

/// Three entries of slot 1: 3 → 2 → 1, at offsets 300, 200, 100.
fn chain_of_three() -> (TempDir, IndexFile) {
    let (dir, mut file) = create(3, 8);
    for offset in [100, 200, 300] {
        file.put_key(1, offset, 5_000).unwrap();
    }
    (dir, file)
}

#[test]
fn hi02_slots_at_or_past_the_count_are_not_followed() {
    let (_dir, file) = chain_of_three();
    let slot = file.layout().slot_position(1);
    for value in [4, 8, i32::MAX] {
        overwrite(&file, slot, value);
        assert_eq!(select_damaged(&file, 1), (vec![], vec![CorruptionKind::IndexSlot]));
    }
    for value in [0, -1, i32::MIN] {
        overwrite(&file, slot, value);
        assert_eq!(select_damaged(&file, 1), (vec![], vec![]));
    }
}

#[test]
fn a_slot_that_names_the_end_of_a_full_file_is_told() {
    let (_dir, mut file) = create(3, 4);
    for offset in [100, 200, 300] {
        file.put_key(1, offset, 5_000).unwrap();
    }
    assert!(file.is_full());
    overwrite(&file, file.layout().slot_position(1), 4);
    assert_eq!(select_damaged(&file, 1), (vec![], vec![CorruptionKind::IndexSlot]));
}

#[test]
fn a_put_that_rests_before_the_count_hides_nothing_that_was_put_before_it() {
    let (_dir, file) = chain_of_three();
    overwrite(&file, 36, 3);
    let found = (vec![200, 100], vec![CorruptionKind::IndexSlot]);
    assert_eq!(select_damaged(&file, 1), found);
    overwrite(&file, file.layout().entry_position(3) + 16, 3);
    assert_eq!(select_damaged(&file, 1), (vec![], vec![CorruptionKind::IndexSlot]));
}

#[test]
fn hi03_links_that_do_not_lead_downward_end_the_chain() {
    let (_dir, file) = chain_of_three();
    let link = file.layout().entry_position(2) + 16;
    for prev in [2, 3, 4, i32::MAX] {
        overwrite(&file, link, prev);
        let expected = (vec![300, 200], vec![CorruptionKind::IndexChain]);
        assert_eq!(select_damaged(&file, 1), expected, "link to {prev}");
        assert_eq!(file.chain(1, 10, &mut Vec::new()).unwrap().len(), 2);
    }
    overwrite(&file, link, -1);
    assert_eq!(select_damaged(&file, 1), (vec![300, 200], vec![]));
}

#[test]
fn hi05_negative_seconds_end_the_chain() {
    let (_dir, file) = chain_of_three();
    overwrite(&file, file.layout().entry_position(2) + 12, -1);
    assert_eq!(select_damaged(&file, 1), (vec![300], vec![CorruptionKind::IndexEntry]));
}

#[test]
fn hi06_header_times_that_cannot_be_overflow_nothing() {
    let (_dir, file) = chain_of_three();
    let raw = fs::OpenOptions::new().write(true).open(file.path()).unwrap();
    for begin in [i64::MAX, i64::MIN, -1] {
        raw.write_all_at(&begin.to_be_bytes(), 0).unwrap();
        overwrite(&file, file.layout().entry_position(3) + 12, i32::MAX);
        for reader in readers(&file) {
            let (mut found, mut findings) = (Vec::new(), Vec::new());
            reader.select(1, i64::MIN, EVER, 10, &mut found, &mut findings).unwrap();
            assert_eq!(found, [300, 200, 100]);
        }
    }
}

#[test]
fn hi07_layouts_without_slots_or_entries_do_not_exist() {
    assert_eq!(IndexLayout::new(0, 8), None);
    assert_eq!(IndexLayout::new(3, 0), None);
}

#[test]
fn files_of_another_length_are_refused() {
    let (_dir, file) = create(3, 8);
    for len in [0, 39, file.layout().file_len() - 1, file.layout().file_len() + 1] {
        fs::OpenOptions::new().write(true).open(file.path()).unwrap().set_len(len).unwrap();
        for how in [IndexOpen::Read, IndexOpen::ReadMapped, IndexOpen::Write] {
            let Err(Error::Corrupt(corruption)) =
                IndexFile::open(&Os, file.path(), layout(3, 8), how)
            else {
                panic!("{len} bytes");
            };
            assert_eq!(corruption.kind, CorruptionKind::FileLength);
        }
    }
}

#[test]
fn hm01_a_file_cut_short_under_a_reader_is_an_error() {
    let (_dir, mut file) = create(2_000, 8_000);
    for offset in 0..4_000 {
        file.put_key(i32::try_from(offset).unwrap(), offset, 5_000).unwrap();
    }
    let readers = readers(&file);
    let raw = fs::OpenOptions::new().write(true).open(file.path()).unwrap();
    let len = file.layout().file_len();
    for cut in (0..len).step_by(4096) {
        raw.set_len(cut).unwrap();
        for reader in &readers {
            let mut findings = Vec::new();
            let selected = reader.select(1, 0, EVER, 10, &mut Vec::new(), &mut findings);
            let mut lists = OffsetLists::default();
            let many = reader.select_many(&[1, 2], 0, EVER, 10, &mut lists, &mut findings);
            let mapped = matches!(reader.bytes, Bytes::Mapped(_));
            for outcome in [selected, many, reader.header().map(drop)] {
                match outcome {
                    Ok(()) => assert!(!mapped, "cut at {cut}"),
                    Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{error}"),
                }
            }
        }
        raw.set_len(len).unwrap();
    }
}

#[test]
fn an_entry_that_its_slot_does_not_lead_to_is_not_taken_back() {
    for (slot, link) in [(4, 2), (2, 1), (3, 3), (3, 4)] {
        let (_dir, mut file) = chain_of_three();
        let at = file.layout().slot_position(1);
        overwrite(&file, at, slot);
        overwrite(&file, file.layout().entry_position(3) + 16, link);
        let Err(Error::Corrupt(found)) = file.truncate(3, 5_000) else { panic!("{slot}, {link}") };
        assert_eq!((found.kind, found.offset), (CorruptionKind::IndexSlot, at));
        assert_eq!(found.found, format!("entry {slot}, linked to {link}"));
    }
}

#[test]
fn a_slot_that_a_crash_left_ahead_of_the_count_is_empty_to_a_put() {
    let (_dir, file) = chain_of_three();
    for value in [4, 5, i32::MAX] {
        overwrite(&file, file.layout().slot_position(2), value);
        let mut again = IndexFile::open(&Os, file.path(), layout(3, 8), IndexOpen::Write).unwrap();
        again.put_key(2, 400, 6_000).unwrap();
        assert_eq!(select(&again, 2, 0, EVER, 10), [400]);
        again.truncate(4, 5_000).unwrap();
    }
}

#[test]
fn check_finds_each_kind_of_damage() {
    let (_dir, file) = chain_of_three();
    assert_eq!(check(&file), []);
    let layout = *file.layout();
    let damages = [
        (layout.slot_position(1), 1, CorruptionKind::IndexSlot),
        (layout.slot_position(0), 1, CorruptionKind::IndexSlot),
        (layout.entry_position(2) + 16, 0, CorruptionKind::IndexChain),
        (layout.entry_position(2) + 12, -1, CorruptionKind::IndexEntry),
        (layout.entry_position(2) + 4, -1, CorruptionKind::IndexEntry),
        (layout.entry_position(2), -1, CorruptionKind::IndexEntry),
        (16, 1, CorruptionKind::IndexHeader),
        (24, -1, CorruptionKind::IndexHeader),
        (0, -1, CorruptionKind::IndexHeader),
        (8, -1, CorruptionKind::IndexHeader),
    ];
    for (position, value, kind) in damages {
        let before = bytes_of(&file);
        overwrite(&file, position, value);
        let again = IndexFile::open(&Os, file.path(), layout, IndexOpen::Read).unwrap();
        let kinds: Vec<_> = check(&again).iter().map(|finding| finding.kind).collect();
        assert!(kinds.contains(&kind), "byte {position}: {kinds:?}");
        fs::write(file.path(), before).unwrap();
    }
}

#[test]
fn of_a_damaged_entry_only_what_is_wrong_is_told() {
    let (_dir, mut file) = create(3, 8);
    for _ in 0..3 {
        file.put_key(0, 100, 0).unwrap();
    }
    let at = file.layout().entry_position(2);
    overwrite(&file, at + 16, 0);
    let told: Vec<_> = check(&file).iter().map(|found| (found.kind, found.offset)).collect();
    assert_eq!(told, [(CorruptionKind::IndexChain, at + 16)]);
}

#[test]
fn a_slot_far_behind_the_first_is_told_with_its_place() {
    let (_dir, mut file) = create(40_000, 8);
    file.put_key(39_998, 100, 5_000).unwrap();
    let at = file.layout().slot_position(39_998);
    overwrite(&file, at, 0);
    let told: Vec<_> = check(&file).iter().map(|found| (found.kind, found.offset)).collect();
    assert_eq!(told, [(CorruptionKind::IndexSlot, at)]);
}

#[test]
fn a_file_of_no_bytes_tells_a_reader_nothing() {
    let (_dir, file) = chain_of_three();
    let readers = readers(&file);
    fs::OpenOptions::new().write(true).open(file.path()).unwrap().set_len(0).unwrap();
    for reader in readers {
        let Err(Error::Corrupt(found)) = reader.header() else { panic!("a header") };
        assert_eq!(found.kind, CorruptionKind::FileLength);
    }
}
