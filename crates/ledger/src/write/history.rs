//! What this server knows of the history of the ledger. PostgreSQL compares it with its own where a write begins
//! (`migrations/baseline/71_loss.sql`), in the round trip that exists anyway, so a failover to a standby that lacks
//! acknowledged writes is noticed by the first write, also behind a pooler.
//!
//! ```text
//! write A   begin ... acknowledged
//! write B       begin ......... acknowledged
//! write C                  begin, knows A ... acknowledged; A need not be known any more, B must be
//! ```
//! A write that began after another one was acknowledged comes later in the WAL. So only those are compared that no
//! such write follows: at most one for each session. A standby has a prefix of the WAL, so with them it has all others.
//!
//! A database that has all of it has all of it for as long as its incarnation stays (`countersign.incarnation`): then a
//! write compares no more than that. It compares everything after each minute's look at the ledger, too.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use types::CorrelationId;

/// How long a write is compared. Pruning may remove records that are older than a day.
const COMPARED_FOR: Duration = Duration::from_secs(12 * 60 * 60);

/// The maximum number of writes that are named if they are lost.
const MAX_REMEMBERED: usize = 1000;

/// Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct History(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// `None` until this server has seen the ledger.
    log: Option<KnownLog>,
    /// The number of acknowledged writes, and of looks at the ledger.
    count: u64,
    /// The count after the last look at the ledger.
    learned: u64,
    /// Where all that is known was found, or was written.
    found_in: Option<String>,
    /// The writes that no other acknowledged write follows.
    last: Vec<AcknowledgedWrite>,
    /// The newest acknowledged writes, in this order.
    recent: VecDeque<AcknowledgedWrite>,
    /// The newest write of any server that was seen in the ledger.
    seen: Option<AcknowledgedWrite>,
}

/// What a server has seen of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KnownLog {
    /// `identity.no`.
    pub(crate) log_no: i64,
    pub(crate) timeline: Option<i64>,
    /// The last entry of the newest signed checkpoint: its index and its hash, as `bytea` in text form.
    pub(crate) signed: Option<(u64, String)>,
    /// The newest write, unless it is old.
    pub(crate) newest: Option<CorrelationId>,
}

#[derive(Debug, Clone)]
struct AcknowledgedWrite {
    number: u64,
    id: CorrelationId,
    at: SystemTime,
    /// Where it was written, if that is known.
    incarnation: Option<String>,
}

impl AcknowledgedWrite {
    fn now(number: u64, id: CorrelationId, incarnation: Option<String>) -> Self {
        Self { number, id, at: SystemTime::now(), incarnation }
    }
}

/// What a write compares, at its beginning.
#[derive(Debug, Clone)]
pub(crate) struct Comparison {
    /// The number of writes that were acknowledged before.
    pub(crate) count: u64,
    /// A value of `countersign.known_history`, in text form. `None` if this server knows nothing.
    pub(crate) known: Option<String>,
}

/// The arguments of `countersign.note_loss`: what is known, the writes to name, and their times.
pub(crate) type LossArguments = [Option<String>; 3];

impl History {
    /// The number of writes that were acknowledged so far, at the beginning of another one.
    pub(crate) fn count(&self) -> u64 {
        self.known().count
    }

    /// Notes an acknowledged write, which follows those that were acknowledged before it began. `incarnation`: where it
    /// was written, and found what was known when it began. Once for each write.
    pub(crate) fn acknowledge(&self, count_at_begin: u64, id: CorrelationId, incarnation: Option<String>) {
        let mut known = self.known();
        if known.last.iter().any(|write| write.id == id) {
            return;
        }
        known.count += 1;
        let write = AcknowledgedWrite::now(known.count, id, incarnation);
        known.last.retain(|earlier| earlier.number > count_at_begin);
        // What became known since it began was not compared by it.
        let is_found =
            known.learned <= count_at_begin && known.last.iter().all(|other| other.incarnation == write.incarnation);
        known.found_in = write.incarnation.clone().filter(|_| is_found);
        if known.recent.len() == MAX_REMEMBERED {
            known.recent.pop_front();
        }
        known.recent.push_back(write.clone());
        known.last.push(write);
    }

    /// Notes what the ledger has. Another log, after a fork, has another history. Of one log, what was known before
    /// stays known: the database may have lost it since it was compared.
    pub(crate) fn learn(&self, log: KnownLog) {
        let mut known = self.known();
        known.count += 1;
        known.learned = known.count;
        known.found_in = None;
        let before = known.log.take();
        match before.as_ref().map(|before| before.log_no.cmp(&log.log_no)) {
            Some(Ordering::Greater) => known.log = before,
            Some(Ordering::Equal) => {
                let before = before.unwrap_or_default();
                let index = |signed: &Option<(u64, String)>| signed.as_ref().map(|(index, _)| *index);
                let signed = if index(&before.signed) < index(&log.signed) { log.signed } else { before.signed };
                known.seen = log.newest.map(|id| AcknowledgedWrite::now(0, id, None)).or(known.seen.take());
                known.log = Some(KnownLog { signed, timeline: log.timeline.or(before.timeline), ..log });
            }
            Some(Ordering::Less) => {
                let (count, learned) = (known.count, known.learned);
                *known = Known { log: Some(log), count, learned, ..Known::default() };
            }
            None => known.log = Some(log),
        }
    }

    /// What a write compares that begins now.
    pub(crate) fn comparison(&self) -> Comparison {
        let known = self.known();
        Comparison { count: known.count, known: known.to_compare(SystemTime::now(), known.found_in.as_deref()) }
    }

    pub(crate) fn loss_arguments(&self) -> LossArguments {
        let known = self.known();
        let writes =
            || known.seen.iter().filter(|seen| known.recent.iter().all(|it| it.id != seen.id)).chain(&known.recent);
        let ids = writes().map(|write| write.id.to_string());
        let times = writes().filter_map(|write| OffsetDateTime::from(write.at).format(&Rfc3339).ok());
        let [ids, times] = [array(ids), array(times)];
        [known.to_compare(SystemTime::now(), None), Some(ids), Some(times)]
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each change is complete before the lock is released, so the data are consistent even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// A value of `countersign.known_history`, in text form. `None` if this server knows nothing.
    fn to_compare(&self, now: SystemTime, found_in: Option<&str>) -> Option<String> {
        let KnownLog { log_no, timeline, signed, .. } = self.log.as_ref()?;
        let is_compared = |write: &&AcknowledgedWrite| now.duration_since(write.at).is_ok_and(|age| age < COMPARED_FOR);
        let records = array(self.last.iter().chain(&self.seen).filter(is_compared).map(|write| write.id.to_string()));
        let (index, hash) =
            signed.as_ref().map_or_else(Default::default, |(index, hash)| (index.to_string(), format!("\"\\{hash}\"")));
        let timeline = timeline.map(|timeline| timeline.to_string()).unwrap_or_default();
        let found_in = found_in.map(|found_in| format!("\"{found_in}\"")).unwrap_or_default();
        Some(format!("({log_no},\"{records}\",{index},{hash},{timeline},{found_in})"))
    }
}

/// An array of PostgreSQL in text form, of values that need no quotes.
fn array(values: impl Iterator<Item = String>) -> String {
    format!("{{{}}}", values.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Option<&str> = Some("here");
    const THERE: Option<&str> = Some("there");

    fn known(history: &History) -> String {
        history.comparison().known.unwrap()
    }

    fn acknowledge(history: &History, count_at_begin: u64, id: CorrelationId, incarnation: Option<&str>) {
        history.acknowledge(count_at_begin, id, incarnation.map(ToOwned::to_owned));
    }

    #[test]
    fn the_writes_that_no_later_one_follows_are_compared() {
        // DI-4
        let history = History::default();
        let [a, b, c] = [(); 3].map(|()| CorrelationId::new());
        acknowledge(&history, history.count(), a, None);
        assert_eq!(history.comparison().known, None, "of which log is not known");
        let log = KnownLog { log_no: 1, timeline: Some(2), signed: Some((7, "\\xab".to_owned())), newest: None };
        history.learn(log.clone());
        assert_eq!(known(&history), format!("(1,\"{{{a}}}\",7,\"\\\\xab\",2,)"));
        let began = history.count();
        acknowledge(&history, began, b, None);
        acknowledge(&history, began, c, None);
        assert_eq!(
            known(&history),
            format!("(1,\"{{{b},{c}}}\",7,\"\\\\xab\",2,)"),
            "of b and c either may be the last"
        );
        history.learn(KnownLog { signed: Some((6, String::new())), newest: Some(a), ..log });
        assert_eq!(known(&history), format!("(1,\"{{{b},{c},{a}}}\",7,\"\\\\xab\",2,)"), "what is known stays known");
        history.learn(KnownLog { log_no: 2, timeline: None, signed: None, newest: None });
        assert_eq!(known(&history), "(2,\"{}\",,,,)", "another log has another history");
        history.learn(KnownLog { log_no: 1, timeline: None, signed: None, newest: None });
        assert_eq!(known(&history), "(2,\"{}\",,,,)", "a log that is missing was lost");
    }

    #[test]
    fn everything_is_compared_until_one_incarnation_has_all_of_it() {
        // DI-4
        let history = History::default();
        let log = KnownLog { log_no: 1, timeline: None, signed: None, newest: None };
        history.learn(log.clone());
        let found_in = || {
            let known = known(&history);
            let (_, found_in) = known.trim_end_matches(')').rsplit_once(',').unwrap();
            found_in.trim_matches('"').to_owned()
        };
        let write = |incarnation| acknowledge(&history, history.count(), CorrelationId::new(), incarnation);
        assert_eq!(found_in(), "");
        write(HERE);
        assert_eq!(found_in(), "here", "it has compared what was known, and is there itself");
        let began = history.count();
        write(HERE);
        acknowledge(&history, began, CorrelationId::new(), THERE);
        assert_eq!(found_in(), "", "nobody has looked there for the write of here");
        write(THERE);
        assert_eq!(found_in(), "there", "the last one has");
        let began = history.count();
        history.learn(log);
        acknowledge(&history, began, CorrelationId::new(), THERE);
        assert_eq!(found_in(), "", "it began before the ledger was looked at");
        write(THERE);
        write(None);
        assert_eq!(found_in(), "", "where it was written is not known");
    }

    #[test]
    fn what_pruning_may_have_removed_is_not_compared_and_the_memory_is_bounded() {
        let history = History::default();
        history.learn(KnownLog { log_no: 1, timeline: None, signed: None, newest: None });
        for _ in 0..MAX_REMEMBERED + 5 {
            acknowledge(&history, history.count(), CorrelationId::new(), HERE);
        }
        let known = history.known();
        assert_eq!((known.recent.len(), known.last.len()), (MAX_REMEMBERED, 1));
        let later = SystemTime::now() + COMPARED_FOR;
        assert_eq!(known.to_compare(later, None).unwrap(), "(1,\"{}\",,,,)");
    }
}
