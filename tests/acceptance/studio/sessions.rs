//! `create_booking`, `cancel_booking` and `manage_working_hours`.

use super::sqlstate;
use super::statements::{As, Done, Param, Studio};

const OWN: As<'_> = As::Account("default");

async fn book(studio: &Studio, package: &str, starts_at: &str) -> Result<Done, String> {
    studio.call(OWN, "default", "create_booking", &[Some(package), Some("Ana Reis"), Some(starts_at)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_booked_only_while_the_studio_works_and_is_free() {
    // Lisbon is an hour ahead of UTC in June and not in December. Package 1 takes an hour; on 2 June it is booked from 10 to
    // 11 and from 14 to 16.
    let studio = Studio::new().await;
    for (starts_at, refused) in [
        ("2099-06-02 10:30+01", Some("23P01")),
        ("2099-06-02 09:30+01", Some("23P01")),
        ("2099-06-02 15:59+01", Some("23P01")),
        ("2099-06-02 08:30+01", Some("23514")),
        ("2099-06-02 17:01+01", Some("23514")),
        ("2099-06-01 12:00+01", Some("23514")),
        ("2099-06-02 23:30+01", Some("23514")),
        ("2026-03-03 12:00+00", Some("23514")),
        // Right behind and right before others, and the last one of the day.
        ("2099-06-02 11:00+01", None),
        ("2099-06-02 13:00+01", None),
        ("2099-06-02 17:00+01", None),
        // 9 o'clock there, in winter and in summer.
        ("2099-12-01 09:00+00", None),
        ("2099-06-04 08:00+00", None),
        ("2099-12-02 08:00+00", Some("23514")),
    ] {
        let booked = book(&studio, "1", starts_at).await;
        assert_eq!(booked.as_ref().err().map(String::as_str), refused, "{starts_at}: {booked:?}");
    }
    let booked = book(&studio, "3", "2099-06-02 12:00+01").await.unwrap();
    assert_eq!(booked.before, [["3", "Passport pictures", "15.00", "15"]], "what is being booked");
    assert_eq!(booked.result[0][1..4], ["3", "Passport pictures", "Ana Reis"]);
    assert_eq!(booked.after, [booked.result[0][1..].to_vec()], "the same without its number");
    // Another studio at the same time.
    let own = [Some("7"), Some("Ana Reis"), Some("2099-06-02 13:00+01")];
    studio.call(As::Account("north.light"), "north.light", "create_booking", &own).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_bookings_at_once_that_overlap_one_is_made() {
    let studio = Studio::new().await;
    for day in 10..30 {
        let weekday = format!("select extract(isodow from date '2099-06-{day}')");
        if !["2", "3", "4", "5"].contains(&studio.db.value(&weekday).await.as_str()) {
            continue;
        }
        let (first, second) = (format!("2099-06-{day} 12:00+01"), format!("2099-06-{day} 12:30+01"));
        let (first, second) = tokio::join!(book(&studio, "1", &first), book(&studio, "2", &second));
        let refused: Vec<&String> = [&first, &second].into_iter().filter_map(|booked| booked.as_ref().err()).collect();
        assert_eq!(refused, ["23P01"], "{first:?} {second:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_hours_and_other_bookings_of_that_weekday_wait_for_a_booking_that_is_being_made() {
    let studio = Studio::new().await;
    let client = studio.open(OWN).await;
    client.batch_execute("begin").await.unwrap();
    let own = [Some("1"), Some("Ana Reis"), Some("2099-06-03 12:00+01")];
    studio.run(&client, "default", "create_booking", &own).await.unwrap();
    let other = studio.db.connect().await;
    let lock = |weekday, strength| {
        let row = format!("tenant_id = 'default' and weekday = {weekday}");
        format!("select from studio.working_hours where {row} for {strength} nowait")
    };
    // What a change of the hours takes, and the weakest lock that bookings which only share one would all get.
    for strength in ["no key update", "share"] {
        assert_eq!(sqlstate(&other, &lock(3, strength)).await, "55P03", "{strength}");
        assert_eq!(sqlstate(&other, &lock(4, strength)).await, "00000", "{strength}");
    }
    client.batch_execute("commit").await.unwrap();
    assert_eq!(sqlstate(&other, &lock(3, "no key update")).await, "00000");
}

async fn set(studio: &Studio, weekday: &str, opens: Param<'_>, closes: Param<'_>) -> Result<Done, String> {
    studio.call(OWN, "default", "manage_working_hours", &[Some(weekday), opens, closes]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hours_of_a_day_are_replaced_and_those_from_before_bring_them_back() {
    let studio = Studio::new().await;
    let contents = studio.db.contents("studio").await;
    for (weekday, opens, closes) in
        [("2", Some("12:00"), Some("20:00")), ("2", None, None), ("1", Some("09:00"), Some("10:00"))]
    {
        let done = set(&studio, weekday, opens, closes).await.unwrap();
        assert_eq!(done.result, done.after);
        assert_ne!(done.before, done.after);
        let value = |index: usize| Some(done.before[0][index].as_str()).filter(|text| *text != "NULL");
        set(&studio, weekday, value(1), value(2)).await.unwrap();
        assert_eq!(studio.db.contents("studio").await, contents);
    }
    for (opens, closes) in [(Some("10:00"), None), (None, Some("10:00")), (Some("10:00"), Some("10:00"))] {
        assert_eq!(set(&studio, "2", opens, closes).await.unwrap_err(), "23514", "{opens:?} {closes:?}");
    }
    // An account without a studio, and another one's by statements alone and by policies alone.
    for (by, tenant) in [(As::Account("nobody"), "nobody"), (As::Superuser, "nobody"), (OWN, "north.light")] {
        let own = [Some("2"), None, None];
        let done = studio.call(by, tenant, "manage_working_hours", &own).await.unwrap();
        assert_eq!(done, Done::default(), "{by:?} {tenant}");
    }
    assert_eq!(studio.db.contents("studio").await, contents);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_not_begun_is_cancelled_and_its_time_is_free_again() {
    let studio = Studio::new().await;
    let contents = studio.db.contents("studio").await;
    let cancel = async |by: As<'_>, tenant: &str, booking: &str| {
        studio.call(by, tenant, "cancel_booking", &[Some(booking)]).await
    };
    let booked = book(&studio, "1", "2099-06-02 12:00+01").await.unwrap().result.remove(0);
    // Another account's, by policies alone and by statements alone; one that there is not; and one that has begun.
    for (by, tenant, booking) in [
        (As::Account("north.light"), "north.light", booked[0].as_str()),
        (As::Superuser, "north.light", booked[0].as_str()),
        (OWN, "north.light", booked[0].as_str()),
        (OWN, "default", "999999"),
        (OWN, "default", "1"),
    ] {
        assert_eq!(cancel(by, tenant, booking).await.unwrap(), Done::default(), "{by:?} {tenant} {booking}");
    }
    let cancelled = cancel(OWN, "default", &booked[0]).await.unwrap();
    assert_eq!((&cancelled.before, cancelled.after.len()), (&vec![booked.clone()], 0));
    assert_eq!(cancelled.result, [[&booked[0], &booked[3], &booked[4]].map(String::clone)]);
    assert_eq!(studio.db.contents("studio").await, contents);
    book(&studio, "1", &booked[4]).await.unwrap();
}
