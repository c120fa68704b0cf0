use super::*;
use crate::files::Os;

fn run(dir: &Path, file_size: u64) -> FileRun {
    FileRun::load(
        Arc::new(Os),
        Arc::new(OpenFiles::new(2)),
        vec![dir.to_owned()],
        file_size,
        Access::ReadWrite,
    )
    .unwrap()
    .0
}

fn four_files(dir: &Path) -> FileRun {
    let run = run(dir, 1024);
    for record in 0..1024_u64 {
        let offset = record * 4;
        let file = match run.find(offset) {
            Some(file) => file,
            None => run.create(offset / 1024 * 1024).unwrap(),
        };
        let bytes = u32::try_from(record).unwrap().to_be_bytes();
        run.open(&file).unwrap().write_at(&bytes, offset - file.base_offset).unwrap();
    }
    run
}

#[test]
fn mf01_four_bytes_a_record_make_four_files() {
    let dir = tempfile::tempdir().unwrap();
    let run = four_files(dir.path());
    let names: Vec<_> = run.files().iter().map(|file| file.path.clone()).collect();
    let expected: Vec<_> =
        [0, 1024, 2048, 3072].iter().map(|base| dir.path().join(format!("{base:020}"))).collect();
    assert_eq!(names, expected);
    assert_eq!(run.end_offset().unwrap() - run.min_offset().unwrap(), 4096);
    let mut last = [0; 4];
    assert_eq!(run.read_at(&mut last, 4092).unwrap(), 4);
    assert_eq!(crate::format::bytes::u32_of(last), 1023);
}

#[test]
fn a_run_keeps_no_more_files_open_than_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let run = four_files(dir.path());
    for offset in [0, 1024, 2048, 3072, 0, 2048] {
        assert_eq!(run.read_at(&mut [0; 4], offset).unwrap(), 4);
        assert!(run.open_files.kept() <= 2, "{}", run.open_files.kept());
    }
}

#[test]
fn mf02_offsets_find_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let run = four_files(dir.path());
    for (offset, base) in [(0, 0), (100, 0), (1024, 1024), (1124, 1024), (2148, 2048)] {
        assert_eq!(run.find(offset).unwrap().base_offset, base);
    }
}

#[test]
fn mf03_offsets_past_the_end_find_none() {
    let dir = tempfile::tempdir().unwrap();
    let run = four_files(dir.path());
    assert!(run.find(4096).is_none() && run.find(4196).is_none());
    assert_eq!(run.read_at(&mut [0; 4], 4096).unwrap(), 0);
}

#[test]
fn mf04_offsets_before_the_start_find_none_or_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), 1024);
    run.create(1024).unwrap();
    for offset in [0, 123] {
        assert!(run.find(offset).is_none());
    }
}

#[test]
fn mf05_removing_back_to_zero_leaves_room_to_write_again() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), 64);
    run.create(0).unwrap();
    run.create(64).unwrap();
    assert_eq!(run.remove_from(1).unwrap(), 1);
    assert_eq!(run.files().len(), 1);
    run.create(64).unwrap();
    assert_eq!(run.files().len(), 2);
}

#[test]
fn mf06_bytes_of_a_removed_file_stay_readable_through_its_open_file() {
    let dir = tempfile::tempdir().unwrap();
    let run = four_files(dir.path());
    let first = run.files().first().unwrap().clone();
    let open = run.open(&first).unwrap();
    run.remove_first().unwrap().unwrap();
    assert!(!first.path.exists());
    let mut bytes = [0; 4];
    assert_eq!(open.read_at(&mut bytes, 4).unwrap(), 4);
    assert_eq!(crate::format::bytes::u32_of(bytes), 1);
}

#[test]
fn mf09_files_of_several_roots_make_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let roots: Vec<_> = ["a", "b", "c"].iter().map(|root| dir.path().join(root)).collect();
    let open =
        |access| FileRun::load(Arc::new(Os), Arc::default(), roots.clone(), 64, access).unwrap().0;
    let run = open(Access::ReadWrite);
    for file in 0..1024 {
        run.create(file * 64).unwrap();
    }
    let again = open(Access::Read).files();
    assert_eq!(again.len(), 1024);
    for (number, file) in again.iter().enumerate() {
        assert_eq!(file.base_offset, number as u64 * 64);
        assert!(file.path.starts_with(&roots[number % 3]));
    }
    let read_only = vec![roots[0].clone(), roots[2].clone()];
    let mixed = Roots::new(roots.clone(), read_only, 101);
    let (run, _) =
        FileRun::load(Arc::new(Os), Arc::default(), mixed, 64, Access::ReadWrite).unwrap();
    assert_eq!(run.files().len(), 1024);
    assert!(run.create(1024 * 64).unwrap().path.starts_with(&roots[1]));
}

#[test]
fn wrong_lengths_gaps_and_strays_are_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(file_name::offset_name(0)), [0; 64]).unwrap();
    std::fs::write(dir.path().join(file_name::offset_name(128)), [0; 60]).unwrap();
    std::fs::write(dir.path().join("notes.txt"), b"x").unwrap();
    let (run, strays) =
        FileRun::load(Arc::new(Os), Arc::default(), vec![dir.path().to_owned()], 64, Access::Read)
            .unwrap();
    assert_eq!(strays.len(), 1);
    let findings: Vec<_> = run.check().iter().map(ToString::to_string).collect();
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[0].contains("64 bytes") && findings[0].contains("60 bytes"));
    assert!(findings[1].contains("00000000000000000064"));
}
