-- The schema behind manifests/social.toml. Run once on a database without it, in one transaction.
--
-- Nothing cascades: a row that others refer to cannot be deleted, so that no undo takes other people's rows with it.
-- Likes, retweets, bookmarks and follows have no time of their own, so that undoing a removal restores the same row.

create schema social;
comment on schema social is 'A small social network: accounts, tweets, and what accounts do with them.';

create table social.account (
    account_id   text   primary key check (account_id <> ''),
    user_id      bigint not null generated always as identity unique,
    handle       text   not null unique check (handle ~ '^[a-z0-9_]{1,30}$'),
    display_name text   not null check (display_name <> '')
);
comment on table social.account is 'Who tweets. Every other table says by account_id whose row it is.';
comment on column social.account.account_id is 'The account of the countersign principal that acts as this user.';
comment on column social.account.user_id is 'The public number of the user: what follow_user takes.';
comment on column social.account.handle is 'The public name, without @.';
comment on column social.account.display_name is 'The name that is shown.';

create table social.tweet (
    id              bigint      generated always as identity primary key,
    account_id      text        not null references social.account (account_id),
    text            text        not null check (char_length(text) between 1 and 280),
    in_reply_to_id  bigint      references social.tweet (id),
    quoted_tweet_id bigint      references social.tweet (id),
    created_at      timestamptz not null default now()
);
comment on table social.tweet is 'Tweets, replies and quotes.';
comment on column social.tweet.id is 'The number of the tweet: what most tools take as tweet_id.';
comment on column social.tweet.account_id is 'Who wrote it.';
comment on column social.tweet.text is '1 to 280 characters.';
comment on column social.tweet.in_reply_to_id is 'The tweet that this one answers, if it answers one.';
comment on column social.tweet.quoted_tweet_id is 'The tweet that this one shows below its own text, if it quotes one.';
comment on column social.tweet.created_at is 'When it was posted.';
create index tweet_account_id on social.tweet (account_id, created_at);
create index tweet_in_reply_to_id on social.tweet (in_reply_to_id);
create index tweet_quoted_tweet_id on social.tweet (quoted_tweet_id);

create table social.tweet_like (
    account_id text   not null references social.account (account_id),
    tweet_id   bigint not null references social.tweet (id),
    primary key (account_id, tweet_id)
);
comment on table social.tweet_like is 'Which account likes which tweet. Public.';
comment on column social.tweet_like.account_id is 'Who likes it.';
comment on column social.tweet_like.tweet_id is 'The tweet.';
create index tweet_like_tweet_id on social.tweet_like (tweet_id);

create table social.retweet (
    account_id text   not null references social.account (account_id),
    tweet_id   bigint not null references social.tweet (id),
    primary key (account_id, tweet_id)
);
comment on table social.retweet is 'Which account passes on which tweet to its followers.';
comment on column social.retweet.account_id is 'Who passes it on.';
comment on column social.retweet.tweet_id is 'The tweet.';
create index retweet_tweet_id on social.retweet (tweet_id);

create table social.bookmark (
    account_id text   not null references social.account (account_id),
    tweet_id   bigint not null references social.tweet (id),
    primary key (account_id, tweet_id)
);
comment on table social.bookmark is 'Private reading lists.';
comment on column social.bookmark.account_id is 'Whose list.';
comment on column social.bookmark.tweet_id is 'The tweet.';
create index bookmark_tweet_id on social.bookmark (tweet_id);

create table social.follow (
    account_id     text   not null references social.account (account_id),
    target_user_id bigint not null references social.account (user_id),
    primary key (account_id, target_user_id)
);
comment on table social.follow is 'Which account follows which user. Nobody follows themselves (trigger follow_not_self).';
comment on column social.follow.account_id is 'Who follows.';
comment on column social.follow.target_user_id is 'The user_id of who is followed.';
create index follow_target_user_id on social.follow (target_user_id);

-- A CHECK cannot look into social.account, where account_id and user_id meet.
create function social.refuse_following_oneself() returns trigger
language plpgsql
set search_path = ''
as $$
begin
    if exists (
        select from social.account
        where account.account_id = new.account_id and account.user_id = new.target_user_id
    ) then
        raise check_violation using
            message = 'an account cannot follow itself',
            schema = 'social', table = 'follow', constraint = 'follow_not_self';
    end if;
    return new;
end
$$;
comment on function social.refuse_following_oneself() is 'The check of social.follow that nobody follows themselves.';

create trigger follow_not_self before insert or update on social.follow
    for each row execute function social.refuse_following_oneself();

create table social.media (
    id         bigint      generated always as identity primary key,
    account_id text        not null references social.account (account_id),
    media_type text        not null check (media_type <> ''),
    data       bytea       not null check (octet_length(data) between 1 and 1000000),
    created_at timestamptz not null default now()
);
comment on table social.media is 'Uploaded images and videos.';
comment on column social.media.id is 'The number of the upload.';
comment on column social.media.account_id is 'Who uploaded it.';
comment on column social.media.media_type is 'The MIME type, such as image/png.';
comment on column social.media.data is 'The content: 1 to 1,000,000 bytes.';
comment on column social.media.created_at is 'When it was uploaded.';
create index media_account_id on social.media (account_id);
