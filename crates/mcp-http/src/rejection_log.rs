//! Logs rejected requests and connections: one line each, and a summary per second above a rate.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::StatusCode;

/// Average lines per second. Any client that reaches the port can cause them.
const LINES_PER_S: NonZeroU32 = NonZeroU32::new(10).unwrap();

const BURST: NonZeroU32 = NonZeroU32::new(50).unwrap();

/// The interval of the summaries of rejections without a line.
const SUMMARY_PERIOD: Duration = Duration::from_secs(1);

/// The most addresses that a summary counts.
const MAX_ADDRESSES: usize = 1_000;

/// The number of addresses that a summary names: those with the most rejections.
const NAMED_ADDRESSES: usize = 3;

const MAX_PATH_CHARS: usize = 64;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Rejection<'a> {
    Request { status: StatusCode, path: &'a str, message: &'a str },
    Connection { message: &'a str },
}

#[derive(Debug)]
pub(crate) struct RejectionLog {
    lines: DefaultDirectRateLimiter,
    unwritten: Mutex<Summary>,
}

#[derive(Debug, Default)]
struct Summary {
    requests: HashMap<StatusCode, u64>,
    connections: u64,
    by_address: HashMap<IpAddr, u64>,
}

impl RejectionLog {
    pub(crate) fn new() -> Arc<Self> {
        let lines = RateLimiter::direct(Quota::per_second(LINES_PER_S).allow_burst(BURST));
        Arc::new(Self { lines, unwritten: Mutex::default() })
    }

    pub(crate) fn report(self: &Arc<Self>, address: IpAddr, refused: Rejection<'_>) {
        if self.lines.check().is_ok() {
            return write_line(address, refused);
        }
        let mut summary = self.unwritten();
        let is_first = summary.is_empty();
        summary.add(address, refused);
        drop(summary);
        if is_first {
            let log = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(SUMMARY_PERIOD).await;
                log.summarize();
            });
        }
    }

    /// Logs the summary of the rejections without a line, if there are any.
    pub(crate) fn summarize(&self) {
        let summary = std::mem::take(&mut *self.unwritten());
        if !summary.is_empty() {
            tracing::warn!("more requests were refused than are logged one by one: {}", summary.text());
        }
    }

    fn unwritten(&self) -> MutexGuard<'_, Summary> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_line(client: IpAddr, refused: Rejection<'_>) {
    match refused {
        Rejection::Request { status, path, message } => {
            // Only the path: a query string may contain a token.
            let path: String = path.chars().take(MAX_PATH_CHARS).collect();
            tracing::info!(status = status.as_u16(), %client, path, "a request was refused: {message}");
        }
        Rejection::Connection { message } => tracing::info!(%client, "a connection was refused: {message}"),
    }
}

impl Summary {
    fn is_empty(&self) -> bool {
        self.connections == 0 && self.requests.is_empty()
    }

    fn add(&mut self, address: IpAddr, refused: Rejection<'_>) {
        match refused {
            Rejection::Request { status, .. } => *self.requests.entry(status).or_default() += 1,
            Rejection::Connection { .. } => self.connections += 1,
        }
        if self.by_address.len() < MAX_ADDRESSES || self.by_address.contains_key(&address) {
            *self.by_address.entry(address).or_default() += 1;
        }
    }

    /// `4990 requests (401: 4800, 429: 190), 12 connections; from 192.0.2.1 (4990), 192.0.2.7 (12)`
    fn text(&self) -> String {
        let mut statuses: Vec<_> = self.requests.iter().map(|(status, count)| (status.as_u16(), *count)).collect();
        statuses.sort_unstable();
        let total: u64 = statuses.iter().map(|(_, count)| count).sum();
        let statuses: Vec<String> = statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
        let mut text = String::new();
        if total > 0 {
            let _ = write!(text, "{total} requests ({})", statuses.join(", "));
        }
        if self.connections > 0 {
            let _ = write!(text, "{}{} connections", if total > 0 { ", " } else { "" }, self.connections);
        }
        let mut addresses: Vec<_> = self.by_address.iter().map(|(address, count)| (*count, *address)).collect();
        addresses.sort_unstable_by(|a, b| b.cmp(a));
        let named = addresses.iter().take(NAMED_ADDRESSES).map(|(count, address)| format!("{address} ({count})"));
        let named: Vec<String> = named.collect();
        let _ = write!(text, "; from {}", named.join(", "));
        match addresses.len() - named.len() {
            0 => {}
            more if addresses.len() < MAX_ADDRESSES => drop(write!(text, " and {more} other addresses")),
            more => drop(write!(text, " and {more} or more other addresses")),
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_what_was_refused_and_names_the_addresses_with_the_most_of_it() {
        let mut summary = Summary::default();
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        let request = |status| Rejection::Request { status, path: "/", message: "" };
        for last in 0..5 {
            (0..=last).for_each(|_| summary.add(address(last), request(StatusCode::UNAUTHORIZED)));
        }
        summary.add(address(9), request(StatusCode::TOO_MANY_REQUESTS));
        summary.add(address(9), Rejection::Connection { message: "" });
        assert_eq!(
            summary.text(),
            "16 requests (401: 15, 429: 1), 1 connections; \
             from 192.0.2.4 (5), 192.0.2.3 (4), 192.0.2.2 (3) and 3 other addresses"
        );
        let mut connections = Summary::default();
        connections.add(address(1), Rejection::Connection { message: "" });
        assert_eq!(connections.text(), "1 connections; from 192.0.2.1 (1)");
    }

    #[test]
    fn a_summary_of_any_number_of_addresses_is_bounded() {
        let mut summary = Summary::default();
        for number in 0..10 * MAX_ADDRESSES as u32 {
            summary.add(IpAddr::from(number.to_be_bytes()), Rejection::Connection { message: "" });
        }
        assert_eq!((summary.connections, summary.by_address.len()), (10 * MAX_ADDRESSES as u64, MAX_ADDRESSES));
        assert!(summary.text().ends_with("and 997 or more other addresses"), "{}", summary.text());
    }
}
