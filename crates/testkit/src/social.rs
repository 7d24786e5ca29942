//! The demo's social network.

use serde_json::{Value, json};

use crate::cluster::Database;

/// A tweet that the default account has not liked, retweeted or bookmarked.
pub async fn untouched_tweet(database: &Database) -> i64 {
    let sql = "select min(id) from social.tweet t where not exists (
                   select from social.tweet_like l where l.tweet_id = t.id and l.account_id = 'default')
               and not exists (select from social.retweet l where l.tweet_id = t.id and l.account_id = 'default')
               and not exists (select from social.bookmark l where l.tweet_id = t.id and l.account_id = 'default')";
    database.value(sql).await.parse().expect("the id of a tweet")
}

/// Number of likes of a tweet by the default account.
pub async fn likes(database: &Database, tweet: i64) -> String {
    let sql = format!("select count(*) from social.tweet_like where account_id = 'default' and tweet_id = {tweet}");
    database.value(&sql).await
}

/// Every write tool with valid arguments, in an order in which each has an effect. `own` is the id of a tweet of the
/// default account.
pub async fn every_write(database: &Database, own: &Value) -> [(&'static str, Value); 14] {
    let tweet = untouched_tweet(database).await;
    let stranger = "select min(user_id) from social.account a where account_id <> 'default' and not exists (
                    select from social.follow f where f.account_id = 'default' and f.target_user_id = a.user_id)";
    let stranger: i64 = database.value(stranger).await.parse().expect("the id of an account");
    let on_user = json!({"target_user_id": stranger});
    let on_tweet = json!({"tweet_id": tweet});
    [
        ("post_tweet", json!({"text": "hello"})),
        ("reply_to_tweet", json!({"text": "a reply", "in_reply_to_id": tweet})),
        ("quote_tweet", json!({"text": "a quote", "quoted_tweet_id": tweet})),
        ("delete_tweet", json!({"tweet_id": own})),
        ("post_thread", json!({"tweets": ["one", "two", "three"]})),
        ("like_tweet", on_tweet.clone()),
        ("unlike_tweet", on_tweet.clone()),
        ("retweet", on_tweet.clone()),
        ("unretweet", on_tweet.clone()),
        ("bookmark_tweet", on_tweet.clone()),
        ("unbookmark_tweet", on_tweet),
        ("follow_user", on_user.clone()),
        ("unfollow_user", on_user),
        ("upload_media", json!({"media_type": "image/png", "data": "\\x89504e47"})),
    ]
}
