//! `upsert_package`, `delete_package` and what `delete_package_photo` looks at.

use super::sqlstate;
use super::statements::{As, Param, Studio};

const OWN: As<'_> = As::Account("default");

/// The tools that name a package, with what they take beside it.
const NAME_A_PACKAGE: [(&str, &[Param<'_>]); 4] = [
    ("upsert_package", &[Some("Mine now"), Some(""), Some("1"), Some("60")]),
    ("delete_package", &[]),
    ("delete_package_photo", &[Some("7")]),
    ("create_booking", &[Some("Somebody"), Some("2099-06-04 14:00+00")]),
];

#[tokio::test(flavor = "multi_thread")]
async fn another_tenants_package_and_a_missing_one_are_found_in_the_same_way_by_statements_alone_and_by_policies_alone()
{
    let studio = Studio::new().await;
    let contents = studio.db.contents("studio").await;
    for (tool, own) in NAME_A_PACKAGE {
        // Package 6 is north.light's, and there is no 999.
        for (by, tenant) in [(OWN, "default"), (As::Superuser, "default"), (OWN, "north.light")] {
            let mut found = Vec::new();
            for package in ["6", "999"] {
                let params: Vec<Param<'_>> = std::iter::once(Some(package)).chain(own.iter().copied()).collect();
                found.push(studio.call(by, tenant, tool, &params).await.unwrap());
            }
            assert_eq!(found[0], found[1], "{tool} {by:?} {tenant}");
            assert!(found[0].before.is_empty() && found[0].result.is_empty(), "{tool} {by:?} {tenant}: {found:?}");
        }
    }
    assert_eq!(studio.db.contents("studio").await, contents);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_is_added_without_a_number_and_changed_with_one() {
    let studio = Studio::new().await;
    let call = |package, title, price| {
        let studio = &studio;
        async move {
            let own = [package, Some(title), Some("It's new"), Some(price), Some("45")];
            studio.call(OWN, "default", "upsert_package", &own).await
        }
    };
    let added = call(None, "Doctor's headshot", "60.00").await.unwrap();
    let row = ["Doctor's headshot", "It's new", "60.00", "45"];
    assert!(added.before.is_empty());
    assert_eq!(added.after, [row], "the image shows what was added");
    assert_eq!((&added.result[0][1..5], added.result[0][5].as_str()), (row.map(str::to_owned).as_slice(), "t"));
    let package = added.result[0][0].as_str();

    let changed = call(Some(package), "Doctor's headshot", "75.50").await.unwrap();
    assert_eq!((changed.before, &changed.after[0][2]), (added.after, &"75.50".to_owned()));
    assert_eq!((&changed.result[0][0], changed.result[0][5].as_str()), (&added.result[0][0], "f"));
    assert_eq!(studio.db.value("select count(*) from studio.package where tenant_id = 'default'").await, "4");
    // A title that is another package's, of the same tenant or of another one.
    assert_eq!(call(None, "Passport pictures", "1").await.unwrap_err(), "23505");
    call(None, "Headshot", "1").await.unwrap();
    // With the tenant of another, the policies refuse what the statement would add.
    let foreign = [None, Some("Mine now"), Some(""), Some("1"), Some("60")];
    assert_eq!(studio.call(OWN, "north.light", "upsert_package", &foreign).await.unwrap_err(), "42501");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_with_bookings_to_come_stays_and_of_one_without_only_the_past_ones_remain() {
    let studio = Studio::new().await;
    let contents = studio.db.contents("studio").await;
    for package in ["1", "2"] {
        assert_eq!(studio.call(OWN, "default", "delete_package", &[Some(package)]).await.unwrap_err(), "23503");
    }
    assert_eq!(studio.db.contents("studio").await, contents);

    studio.db.run("update studio.package_photo set package_id = 3, position = 1 where photo_id = 3").await;
    let deleted = studio.call(OWN, "default", "delete_package", &[Some("3")]).await.unwrap();
    assert_eq!(deleted.before[0][5..], ["1", "1"], "one photo, one booking");
    assert_eq!(deleted.result, [["3", "Passport pictures"]]);
    assert!(deleted.after.is_empty());
    assert_eq!(studio.db.rows("select from studio.package_photo where photo_id = 3").await.len(), 0);
    let booking = "select package_id, package_title, customer from studio.booking where booking_id = 1";
    assert_eq!(studio.db.rows(booking).await, [["NULL", "Passport pictures", "Inês Duarte"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn before_a_photo_is_deleted_the_package_and_its_photos_are_shown_and_locked_without_their_bytes() {
    let studio = Studio::new().await;
    let client = studio.open(OWN).await;
    client.batch_execute("begin").await.unwrap();
    let seen = studio.run(&client, "default", "delete_package_photo", &[Some("1"), Some("2")]).await.unwrap();
    let photos: Vec<[&str; 3]> = seen.before.iter().map(|row| [&*row[2], &*row[3], &*row[7]]).collect();
    assert_eq!(photos, [["1", "1", "f"], ["2", "2", "t"], ["3", "3", "f"]]);
    assert!(seen.before.iter().flatten().all(|value| !value.starts_with("\\x")), "{seen:?}");
    let other = studio.db.connect().await;
    for (sql, expected) in [
        ("select from studio.package where package_id = 1 for update nowait", "55P03"),
        ("select from studio.package_photo where photo_id = 1 for update nowait", "55P03"),
        ("select from studio.package_photo where photo_id = 3 for update nowait", "55P03"),
        ("select from studio.package where package_id = 2 for update nowait", "00000"),
        ("select from studio.package_photo where photo_id = 4 for update nowait", "00000"),
    ] {
        assert_eq!(sqlstate(&other, sql).await, expected, "{sql}");
    }
}
