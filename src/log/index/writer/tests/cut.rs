use super::*;

#[test]
fn rc20_entries_of_cut_records_are_taken_out_and_new_ones_found() {
    let mut index = Index::new(10, 4);
    for offset in 1..=11 {
        index.build(offset, NOW + offset, "k");
    }
    index.reload();
    let (taken, removed) = index.service.truncate(5, |offset| Ok(Some(NOW + offset))).unwrap();
    assert_eq!((taken, removed.len()), (2, 2));
    assert_eq!(index.service.last_keyed_offset().unwrap(), Some(4));
    let mut never = Index::new(10, 4);
    for offset in 1..=4 {
        never.build(offset, NOW + offset, "k");
    }
    assert_eq!(index.bytes(), never.bytes());
    index.build(5, NOW + 5, "new");
    assert_eq!(index.raw("new", 0, EVER, 10), [5]);
    assert_eq!(index.raw("k", 0, EVER, 10), [4, 3, 2, 1]);
}

#[test]
fn entries_are_taken_out_of_the_file_that_is_written() {
    let (mut index, mut never) = (Index::new(10, 8), Index::new(10, 8));
    for offset in 1..=5 {
        index.build(offset, NOW + offset, "k");
    }
    let taken = index.service.truncate(2, |offset| Ok(Some(NOW + offset))).unwrap();
    assert_eq!(taken, (4, vec![]));
    never.build(1, NOW + 1, "k");
    assert_eq!(index.bytes(), never.bytes());
    index.build(2, NOW + 2, "k");
    never.build(2, NOW + 2, "k");
    assert_eq!(index.bytes(), never.bytes());
}

#[test]
fn of_full_files_only_those_that_went_are_flushed_no_more() {
    for newest_go in [true, false] {
        let mut index = Index::new(10, 4);
        for offset in 1..=10 {
            index.build(offset, NOW + offset, "k");
        }
        let third = index.service.run().files()[2].name;
        let (removed, flushed) = match newest_go {
            true => (index.service.remove_from_name(third), NOW + 6),
            false => (index.service.delete_before(4), NOW + 9),
        };
        assert_eq!(removed.unwrap().len(), 1 + usize::from(newest_go));
        assert_eq!(index.service.begin_flush().unwrap().run().unwrap(), Some(flushed));
    }
}

#[test]
fn truncating_at_the_edge_of_a_file_keeps_it_whole() {
    let mut index = Index::new(10, 4);
    for offset in 1..=3 {
        index.build(offset, NOW, "k");
    }
    index.build(4, NOW, "");
    let whole = index.bytes();
    assert_eq!(whole.len(), 2);
    let unasked = |_| -> Result<Option<i64>> { panic!("no entry is cut") };
    assert_eq!(index.service.truncate(4, unasked).unwrap(), (0, vec![]));
    assert_eq!(index.bytes(), whole);
    let (taken, removed) = index.service.truncate(3, |offset| Ok(Some(offset))).unwrap();
    assert_eq!((taken, removed.len(), index.names().len()), (1, 1, 1));
    let (_, removed) = index.service.truncate(0, unasked).unwrap();
    assert_eq!((removed.len(), index.names().len()), (1, 0));
    assert_eq!(index.service.last_keyed_offset().unwrap(), None);
}

#[test]
fn a_file_whose_last_record_is_gone_when_others_are_cut_is_removed() {
    let mut index = Index::new(10, 4);
    for offset in 1..=5 {
        index.build(offset, NOW, "k");
    }
    let (taken, removed) = index.service.truncate(5, |_| Ok(None)).unwrap();
    assert_eq!((taken, removed.len(), index.names().len()), (0, 1, 1));
    assert_eq!(index.service.last_keyed_offset().unwrap(), Some(3));
}

#[test]
fn keep_while_drops_the_first_unwanted_file_and_all_newer_ones() {
    let mut index = Index::new(10, 3);
    for offset in 1..=7 {
        index.build(offset, NOW + offset, "k");
    }
    let removed = index.service.keep_while(|header| header.end_timestamp_ms <= NOW + 2).unwrap();
    assert_eq!(removed.len(), 3);
    assert_eq!(index.candidates("k", 0, EVER), [2, 1]);
    assert!(index.service.keep_while(|_| true).unwrap().is_empty());
    for offset in 3..=4 {
        index.build(offset, NOW + offset, "k");
    }
    assert_eq!(index.candidates("k", 0, EVER), [4, 3, 2, 1]);
}

#[test]
fn rt01_expired_files_go_from_the_front_and_never_the_last() {
    let mut index = Index::new(10, 8);
    for offset in 0..55 {
        index.build(offset * 128, NOW, "k");
    }
    assert_eq!(index.names().len(), 8);
    assert_eq!(index.service.delete_before(10 * 128).unwrap().len(), 1);
    assert_eq!(index.service.delete_before(15 * 128).unwrap().len(), 1);
    assert_eq!(index.names().len(), 6);
    assert_eq!(index.service.delete_before(0).unwrap().len(), 0);
    assert_eq!(index.service.delete_before(EVER).unwrap().len(), 5);
    assert_eq!(index.raw("k", 0, EVER, 100).len(), 55 - 49);
    assert_eq!(index.build(55 * 128, NOW, "k"), 1);
}
