//! Controls: with a bug planted, the same tests of crashes and faults fail. `make controls` runs them,
//! and nothing else, since a planted bug is there for the whole process.

use std::panic::catch_unwind;
use std::sync::{Mutex, PoisonError};

use mqstore::files::system::planted::{Bug, plant};

use crate::{failing_calls, flush, power_cuts, recovery, retention};

/// One bug at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Shows that `test` fails with that bug.
fn is_seen(bug: Bug, test: fn()) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    plant(Some(bug));
    let outcome = catch_unwind(test);
    plant(None);
    assert!(outcome.is_err(), "with {bug:?} the test passes all the same");
}

macro_rules! controls {
    ($($name:ident: $bug:ident by $test:path;)*) => {
        $(#[test]
        fn $name() {
            is_seen(Bug::$bug, $test);
        })*
    };
}

controls! {
    a_flush_left_out: FlushLeftOut
        by power_cuts::under_sync_flush_no_order_of_pages_loses_what_was_acknowledged;
    a_last_page_left_out: LastPageLeftOut
        by power_cuts::under_async_flush_no_order_of_pages_loses_what_was_flushed;
    an_early_acknowledgement: AcknowledgedEarly
        by power_cuts::under_sync_flush_no_order_of_pages_loses_what_was_acknowledged;
    a_file_s_name_not_flushed: FolderNotFlushed
        by power_cuts::under_sync_flush_no_order_of_pages_loses_what_was_acknowledged;
    a_folder_s_name_not_flushed: NewFolderNotFlushed
        by power_cuts::under_sync_flush_no_order_of_pages_loses_what_was_acknowledged;
    a_blank_not_written: BlankNotWritten
        by power_cuts::under_sync_flush_no_order_of_pages_loses_what_was_acknowledged;
    a_recovery_not_flushed: RecoveryNotFlushed
        by power_cuts::under_async_flush_no_order_of_pages_loses_what_was_flushed;
    a_checkpoint_ahead_of_the_data: CheckpointAhead
        by power_cuts::under_async_flush_no_order_of_pages_loses_what_was_flushed;
    a_checksum_not_checked: ChecksumNotChecked
        by power_cuts::under_async_flush_no_order_of_pages_loses_what_was_flushed;
    an_abort_file_not_written: AbortNotWritten
        by power_cuts::under_async_flush_no_order_of_pages_loses_what_was_flushed;
    a_seal_before_the_flush: SealedUnflushed
        by power_cuts::under_async_flush_no_order_of_pages_loses_what_was_flushed;
    a_seal_believed_after_a_crash: SealBelievedAfterCrash
        by power_cuts::under_async_flush_no_order_of_pages_loses_what_was_flushed;
    a_mark_written_too_early: MarkEarly
        by power_cuts::under_sync_flush_no_order_of_pages_loses_what_was_acknowledged;
    a_flush_tried_again: FlushTriedAgain
        by failing_calls::fl04_each_call_fails_once_under_sync_flush;
    pages_not_written_again: PagesNotWrittenAgain
        by failing_calls::fl04_each_call_fails_once_under_sync_flush;
    a_tail_not_zeroed: TailNotZeroed by recovery::rc08_what_was_cut_never_comes_back;
    a_quarantine_not_made: QuarantineNotMade by recovery::rc08_what_was_cut_never_comes_back;
    a_lock_taken_late: LockTakenLate
        by recovery::ck05_nothing_is_touched_before_the_lock_is_taken;
    a_message_readable_early: ReadableEarly
        by flush::fl01_a_held_flush_holds_every_append_and_hides_what_it_wrote;
    a_deletion_that_nobody_asked_for: DeletedUnasked
        by retention::nothing_goes_without_rules_however_old_the_files_and_however_full_the_disk;
    space_not_reserved: SpaceNotReserved
        by flush::fl06_a_full_disk_is_an_error_before_anything_is_taken_and_passes;
}
