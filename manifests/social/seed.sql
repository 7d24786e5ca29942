-- The data of the social demo: the same in every run.
insert into social.account (account_id, handle, display_name) values
    ('default', 'you', 'You'),
    ('acct_mira', 'mira', 'Mira Okafor'),
    ('acct_jonas', 'jonas', 'Jonas Lindqvist'),
    ('acct_tamsin', 'tamsin', 'Tamsin Reyes'),
    ('acct_petr', 'petr', 'Petr Novák'),
    ('acct_yuki', 'yuki', 'Yuki Tanabe'),
    ('acct_dba', 'nightshift_dba', 'The Night Shift');

insert into social.tweet (account_id, text, in_reply_to_id, quoted_tweet_id, created_at) values
    ('acct_mira', 'Moved the last service off its own database today. One cluster, six schemas, much calmer evenings.', null, null, '2026-03-02 08:12:00+00'),
    ('acct_dba', 'A backup that nobody has restored is a rumour.', null, null, '2026-03-02 09:40:00+00'),
    ('acct_jonas', 'Restored ours last week. It took four hours longer than the plan said.', 2, null, '2026-03-02 09:58:00+00'),
    ('acct_tamsin', 'Which index type would you take for 40 million free-text notes?', null, null, '2026-03-02 11:05:00+00'),
    ('acct_petr', 'GIN, and a column with the tsvector so that you see what is indexed.', 4, null, '2026-03-02 11:21:00+00'),
    ('acct_yuki', 'First snow on the ridge this morning. Took the long way to work.', null, null, '2026-03-02 22:47:00+00'),
    ('default', 'Trying to let an agent tidy up my reading list. Wish me luck.', null, null, '2026-03-03 07:30:00+00'),
    ('acct_mira', 'Luck, and an undo button.', 7, null, '2026-03-03 07:34:00+00'),
    ('acct_dba', 'Long transactions are like long meetings: somebody else pays.', null, null, '2026-03-03 10:02:00+00'),
    ('acct_jonas', 'Putting this one on the office wall.', null, 9, '2026-03-03 10:15:00+00'),
    ('acct_tamsin', 'It was 38 million notes, GIN took nine minutes to build. Thank you all.', 5, null, '2026-03-03 15:44:00+00'),
    ('acct_petr', 'Today I learned that EXPLAIN can tell you about WAL as well.', null, null, '2026-03-04 06:55:00+00'),
    ('acct_yuki', 'Tea first, then the pager.', null, null, '2026-03-04 21:10:00+00'),
    ('default', 'The agent sorted 212 articles and asked before it deleted any. Good agent.', null, null, '2026-03-05 18:20:00+00'),
    ('acct_dba', 'Asking before deleting puts it ahead of most of us.', 14, null, '2026-03-05 18:26:00+00'),
    ('acct_mira', 'Wrote the runbook for failover. Now it only has to be true.', null, null, '2026-03-06 12:00:00+00'),
    ('acct_jonas', 'We do ours every first Monday. The second time was the embarrassing one.', 16, null, '2026-03-06 12:31:00+00'),
    ('acct_tamsin', 'Does anybody still use 2PC on purpose?', null, null, '2026-03-07 09:09:00+00'),
    ('acct_petr', 'On purpose, no.', 18, null, '2026-03-07 09:12:00+00'),
    ('acct_yuki', 'The ridge again, without the snow. Spring has opinions.', null, 6, '2026-03-08 08:00:00+00');

insert into social.tweet_like (account_id, tweet_id) values
    ('default', 2), ('default', 8), ('acct_mira', 2), ('acct_mira', 14), ('acct_jonas', 2), ('acct_jonas', 9),
    ('acct_tamsin', 5), ('acct_petr', 11), ('acct_yuki', 9), ('acct_dba', 14), ('acct_dba', 3), ('acct_petr', 6);

insert into social.retweet (account_id, tweet_id) values
    ('acct_jonas', 2), ('acct_tamsin', 9), ('acct_dba', 14), ('default', 9);

insert into social.bookmark (account_id, tweet_id) values
    ('default', 5), ('acct_tamsin', 5), ('acct_mira', 12);

insert into social.follow (account_id, target_user_id)
select follower.account_id, followed.user_id
from (values ('default', 'mira'), ('default', 'nightshift_dba'), ('acct_mira', 'jonas'), ('acct_jonas', 'nightshift_dba'),
             ('acct_tamsin', 'petr'), ('acct_petr', 'tamsin'), ('acct_yuki', 'mira'), ('acct_dba', 'you'))
     as pairs (account_id, handle)
join social.account as follower using (account_id)
join social.account as followed on followed.handle = pairs.handle;
