//! An index file that is all there is and was cut short: its layout is told by what is left of it or by
//! the configuration, and then it is made again; else it is said what settles it.

use std::fs;
use std::ops::ControlFlow;

use mqstore::Error;
use mqstore::care::{
    Code, RebuildOptions, RebuildTarget, RebuildWhat, Severity, VerifyOptions, doctor, rebuild,
};
use mqstore::store::OpenMode;
use mqstore::store::open::plan::plan;

use crate::support::{Home, by_key, check, key, patch, set_len, small};

const MESSAGES: usize = 20;

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A store with one index file, cut to `len` bytes; whether anybody tells its layout.
fn cut(sound: &Home, len: u64, is_told: bool) -> Home {
    let mut home = sound.copy();
    let files = home.index_files();
    assert_eq!(files.len(), 1);
    set_len(&files[0], len);
    if !is_told {
        // As in a store that RocketMQ made.
        fs::remove_file(home.path().join("config/mqstore.json")).unwrap();
        (home.config.max_hash_slot_num, home.config.max_index_num) = (None, None);
    }
    home
}

/// Opens for writing what recovery says is to be made again, and finds every key.
fn made_again(home: &Home, what: &str) {
    let planned = plan(home.path(), home.config.clone(), &home.storage, &mut go_on).unwrap();
    assert_eq!(planned.report.rebuilt, ["index"], "{what}");
    let store = home.write();
    assert_eq!(store.recovery().unwrap().rebuilt, ["index"], "{what}");
    check(&store, MESSAGES);
    for number in 0..MESSAGES {
        assert_eq!(by_key(&store, number).len(), 1, "{what}: {}", key(number));
    }
    store.close().unwrap();
    let report = home.verify(&VerifyOptions::default());
    assert_eq!(report.findings, [], "{what}");
}

/// Findings of `verify` about the index, with severity.
fn told(home: &Home) -> Vec<(Code, Severity)> {
    let report = home.verify(&VerifyOptions::default());
    report.findings.iter().map(|found| (found.code, found.severity)).collect()
}

#[test]
fn a_file_cut_anywhere_is_made_again_where_its_layout_is_configured() {
    let sound = Home::closed(MESSAGES);
    let whole = fs::metadata(&sound.index_files()[0]).unwrap().len();
    // An empty file has no layout, so the configured one counts.
    for len in (1..whole).step_by(7).chain([39, 40, 68, 107, 108, whole - 1, whole + 1]) {
        let home = cut(&sound, len, true);
        assert_eq!(told(&home), [(Code::IndexUnusable, Severity::Error)], "{len} bytes");
        made_again(&home, &format!("{len} bytes"));
    }
}

#[test]
fn the_first_entry_tells_the_slots_of_rocketmq_s_own_layout() {
    let mut config = small();
    (config.max_hash_slot_num, config.max_index_num) = (None, None);
    let sound = Home::new(config);
    let store = sound.create();
    sound.fill(&store, 0..MESSAGES);
    store.close().unwrap();
    for len in [20_000_080, 20_000_200, 200_000_001, 420_000_039, 420_000_041] {
        let home = cut(&sound, len, false);
        assert_eq!(told(&home), [(Code::IndexUnusable, Severity::Error)], "{len} bytes");
        made_again(&home, &format!("{len} bytes"));
    }
    // A file that ends after an entry and holds all counted ones may be whole.
    let home = cut(&sound, 200_000_000, false);
    assert_eq!(told(&home), [(Code::IndexLayout, Severity::Warning)]);
    assert!(home.open(OpenMode::ReadWrite).is_err());
}

#[test]
fn a_file_without_a_layout_is_refused_and_named_with_the_settings() {
    let sound = Home::closed(MESSAGES);
    // The last of them fits nine slots with four entries each, which a file with so few never had.
    for len in [10, 40, 100, 300, 40 + 84 * 6] {
        let home = cut(&sound, len, false);
        assert_eq!(told(&home), [(Code::IndexLayout, Severity::Warning)], "{len} bytes");
        let before = home.snapshot();
        let errors = [
            home.open(OpenMode::ReadWrite).unwrap_err(),
            plan(home.path(), home.config.clone(), &home.storage, &mut go_on).unwrap_err(),
            rebuild(home.path(), home.config.clone(), &index_alone(), &mut go_on).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
            let text = error.to_string();
            assert!(
                text.contains("max_hash_slot_num and max_index_num as the writer had"),
                "{text}"
            );
        }
        assert!(home.snapshot() == before, "{len} bytes");
        let named = doctor(home.path(), &home.config, &mut go_on).unwrap().diagnoses;
        assert_eq!(named.len(), 1, "{named:?}");
        let cure = named[0].cure.as_deref().unwrap();
        assert!(cure.ends_with("--what index --apply --config broker.conf"), "{cure}");
        // The cure applied to the broker's configuration.
        let config = small();
        rebuild(home.path(), config.clone(), &index_alone(), &mut go_on).unwrap();
        let home = Home { config, ..home };
        assert_eq!(told(&home), [], "{len} bytes");
        let store = home.write();
        assert_eq!(by_key(&store, 7).len(), 1);
    }
}

fn index_alone() -> RebuildOptions {
    RebuildOptions {
        what: RebuildWhat { queues: false, index: true },
        topics: None,
        target: RebuildTarget::InPlace,
        threads: None,
        aside: None,
    }
}

#[test]
fn a_whole_file_of_another_layout_is_no_file_cut_short() {
    let sound = Home::closed(MESSAGES);
    let mut home = sound.copy();
    home.config.max_index_num = Some(29);
    let before = home.snapshot();
    let error = home.open(OpenMode::ReadWrite).unwrap_err().to_string();
    assert!(error.starts_with("max_index_num: does not fit"), "{error}");
    assert!(home.snapshot() == before);
    // Nor are several of one length that tell nothing.
    let home = Home::closed(100);
    let files = home.index_files();
    assert!(files.len() > 1);
    files.iter().for_each(|path| set_len(path, 100));
    assert!(home.open(OpenMode::ReadWrite).is_err());
}

#[test]
fn one_sound_file_tells_the_layout_of_all() {
    let mut home = Home::closed(100);
    (home.config.max_hash_slot_num, home.config.max_index_num) = (None, None);
    set_len(&home.index_files()[0], 300);
    let store = home.write();
    check(&store, 100);
    assert_eq!(by_key(&store, 3).len(), 1);
    store.close().unwrap();
    assert_eq!(told(&home), []);
}

#[test]
fn a_header_of_zeros_in_a_file_of_the_right_length_is_made_again() {
    let home = cut(&Home::closed(MESSAGES), 628, false);
    patch(&home.index_files()[0], 0, &[0; 120]);
    let store = home.write();
    assert_eq!(by_key(&store, 3).len(), 1);
}
