//! Age of log files by times that a wrong clock may have given. A doubt only makes a file younger.

use crate::time::FAR_MS;

pub const HOUR_MS: i64 = 3_600_000;
/// 2012-01-01: RocketMQ's log is younger, so an earlier time is a wrong clock's.
const EARLIEST_MS: i64 = 1_325_376_000_000;
const MOST_REST_MS: i64 = 365 * 24 * HOUR_MS;

#[derive(Clone, Copy, Debug)]
pub struct FileTimes {
    pub first_ms: Option<i64>,
    pub newest_ms: i64,
    pub modified_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    pub ms: i64,
    /// Whether it is the file's newest store time.
    pub is_own: bool,
    /// Whether only the file before it shows that its times are wrong.
    pub is_stepped_back: bool,
}

/// Returns the newest believable time of a file: its newest store time if that is possible, not
/// before `before_ms`, and not after the first believable time in `behind`. Otherwise its
/// modification time, else the time behind, else `now_ms`; never before a possible time of its own.
#[must_use]
pub fn newest_believable(
    own: FileTimes,
    before_ms: i64,
    behind: &[Option<i64>],
    now_ms: i64,
) -> Newest {
    let is_possible = |ms: &i64| is_possible(*ms, now_ms);
    let earliest_ms = before_ms.saturating_sub(FAR_MS);
    let is_stepped_back = is_possible(&own.newest_ms) && own.newest_ms < earliest_ms;
    let mut times = behind.iter().copied().flatten().filter(is_possible);
    let next_ms = times.find(|&ms| ms >= earliest_ms);
    let latest_ms = next_ms.unwrap_or(now_ms).saturating_add(FAR_MS);
    if is_possible(&own.newest_ms) && !is_stepped_back && own.newest_ms <= latest_ms {
        return Newest { ms: own.newest_ms, is_own: true, is_stepped_back };
    }
    let modified_ms = Some(own.modified_ms).filter(|ms| is_possible(ms) && *ms >= earliest_ms);
    let stored_ms = [own.first_ms, Some(own.newest_ms)].into_iter().flatten().filter(is_possible);
    let written_ms = modified_ms.or(next_ms).unwrap_or(now_ms);
    let ms = stored_ms.fold(written_ms, i64::max);
    Newest { ms, is_own: ms == own.newest_ms, is_stepped_back }
}

/// Age of what was stored at `newest_ms`. A jump by more than a year and `kept_ms` counts as no
/// time: a wrong clock made it, or nothing was stored meanwhile.
#[must_use]
pub fn age_ms(newest_ms: i64, behind: &[Option<i64>], now_ms: i64, kept_ms: i64) -> i64 {
    let most_ms = kept_ms.saturating_add(MOST_REST_MS);
    let possible = behind.iter().copied().flatten().filter(|ms| is_possible(*ms, now_ms));
    let (mut at_ms, mut age_ms) = (newest_ms, 0_i64);
    for ms in possible.chain([now_ms]).filter(|ms| *ms <= now_ms) {
        let passed_ms = ms.saturating_sub(at_ms).max(0);
        if passed_ms <= most_ms {
            age_ms = age_ms.saturating_add(passed_ms);
        }
        at_ms = at_ms.max(ms);
    }
    age_ms
}

#[must_use]
pub fn is_possible(ms: i64, now_ms: i64) -> bool {
    (EARLIEST_MS..=now_ms.saturating_add(FAR_MS)).contains(&ms)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BEGIN_MS: i64 = 1_700_000_000_000;

    proptest! {
        #[test]
        fn a_wrong_clock_makes_no_file_older_than_it_or_the_one_before_is(
            gaps in prop::collection::vec((0..100 * HOUR_MS, 0..100 * HOUR_MS), 2..8),
            at in any::<prop::sample::Index>(),
            wrong in prop::array::uniform2(prop_oneof![
                any::<i64>(),
                0..BEGIN_MS,
                BEGIN_MS - 1000 * HOUR_MS..BEGIN_MS + 2000 * HOUR_MS,
            ]),
            with_modified in any::<bool>(),
        ) {
            let mut now_ms = BEGIN_MS;
            let truth: Vec<_> = gaps.iter().map(|(before, inside)| {
                let first_ms = now_ms + before;
                now_ms = first_ms + inside;
                FileTimes { first_ms: Some(first_ms), newest_ms: now_ms, modified_ms: now_ms }
            }).collect();
            let mut files = truth.clone();
            let at = at.index(files.len() - 1);
            files[at].first_ms = Some(wrong[0].min(wrong[1]));
            files[at].newest_ms = wrong[0].max(wrong[1]);
            if with_modified {
                files[at].modified_ms = wrong[0];
            }
            let firsts: Vec<_> = files.iter().map(|file| file.first_ms).collect();
            let mut before_ms = i64::MIN;
            for (number, file) in files.iter().enumerate() {
                let behind = &firsts[number + 1..];
                let newest = newest_believable(*file, before_ms, behind, now_ms);
                let real_ms = match number == at && number > 0 {
                    true => truth[number - 1].newest_ms - FAR_MS,
                    false if number == at => EARLIEST_MS,
                    false => truth[number].newest_ms,
                };
                prop_assert!(newest.ms >= real_ms, "file {number}: {newest:?}, {files:?}");
                prop_assert!(newest.ms <= now_ms + FAR_MS);
                let age_ms = age_ms(newest.ms, behind, now_ms, HOUR_MS);
                prop_assert!((0..=(now_ms - newest.ms).max(0)).contains(&age_ms));
                if is_possible(file.newest_ms, now_ms) {
                    before_ms = before_ms.max(file.newest_ms);
                }
            }
        }

        #[test]
        fn a_clock_far_from_the_newest_data_makes_nothing_old(
            now_ms in prop_oneof![
                i64::MIN..BEGIN_MS,
                BEGIN_MS + MOST_REST_MS + 2 * HOUR_MS..i64::MAX,
            ],
        ) {
            let own = FileTimes { first_ms: None, newest_ms: BEGIN_MS, modified_ms: BEGIN_MS };
            let behind = [Some(BEGIN_MS), None];
            let newest = newest_believable(own, i64::MIN, &behind, now_ms);
            prop_assert_eq!(age_ms(newest.ms, &behind, now_ms, HOUR_MS), 0);
        }
    }

    #[test]
    fn a_store_that_rested_for_months_ages_and_a_jump_of_years_counts_once_data_follow() {
        let months_ms = 300 * 24 * HOUR_MS;
        assert_eq!(age_ms(BEGIN_MS, &[None], BEGIN_MS + months_ms, HOUR_MS), months_ms);
        let later_ms = BEGIN_MS + 10 * MOST_REST_MS;
        let behind = [Some(BEGIN_MS), Some(later_ms)];
        assert_eq!(age_ms(BEGIN_MS, &behind, later_ms, HOUR_MS), 0);
        assert_eq!(age_ms(BEGIN_MS, &behind, later_ms + HOUR_MS, HOUR_MS), HOUR_MS);
    }
}
