-- Demo data for manifests/social/schema.sql: the same rows, ids and times on every machine.

insert into social.account (account_id, user_id, handle, display_name) overriding system value values
    ('default', 1, 'you', 'You'),
    ('ana.ferreira', 2, 'anaferreira', 'Ana Ferreira'),
    ('bakery.north', 3, 'northstreetbakery', 'North Street Bakery'),
    ('chidi.okafor', 4, 'chidi_o', 'Chidi Okafor'),
    ('harbor.ferry', 5, 'harborferry', 'Harbor Ferry Service'),
    ('mei.tanaka', 6, 'mei_tanaka', 'Mei Tanaka'),
    ('tomas.novak', 7, 'tnovak', 'Tomáš Novák');
alter table social.account alter column user_id restart with 8;

insert into social.tweet (id, account_id, text, in_reply_to_id, quoted_tweet_id, created_at) overriding system value values
    (1, 'bakery.north', 'Sourdough is out of the oven. First loaves at 7, as always.', null, null, '2026-03-02 06:41:00+00'),
    (2, 'ana.ferreira', 'Is there any rye left for the afternoon?', 1, null, '2026-03-02 08:12:00+00'),
    (3, 'bakery.north', 'Four loaves. We will put one aside for you.', 2, null, '2026-03-02 08:20:00+00'),
    (4, 'harbor.ferry', 'Fog on the bay: the 9:15 to the island leaves at 9:40 today.', null, null, '2026-03-02 08:55:00+00'),
    (5, 'chidi.okafor', 'There goes my early meeting.', null, 4, '2026-03-02 09:01:00+00'),
    (6, 'default', 'Took the ferry this morning and saw nothing but white. Lovely.', null, null, '2026-03-02 10:30:00+00'),
    (7, 'mei.tanaka', 'Please tell me you took pictures!', 6, null, '2026-03-02 10:44:00+00'),
    (8, 'default', 'Forty of them, all the same.', 7, null, '2026-03-02 10:47:00+00'),
    (9, 'tomas.novak', 'EXPLAIN ANALYZE says 3 ms, my users say 3 s. Guess who is right.', null, null, '2026-03-03 07:58:00+00'),
    (10, 'chidi.okafor', 'The network in between. It is always the network.', 9, null, '2026-03-03 08:05:00+00'),
    (11, 'tomas.novak', 'It was a sleep() that I left in. Sorry, network.', 10, null, '2026-03-03 11:32:00+00'),
    (12, 'mei.tanaka', 'Reading group on Thursday: chapter 4, and bring your own cake.', null, null, '2026-03-03 12:00:00+00'),
    (13, 'ana.ferreira', 'Cake is sorted, see the bakery''s window.', 12, null, '2026-03-03 12:09:00+00'),
    (14, 'bakery.north', 'We heard "reading group" and baked two of them.', null, 12, '2026-03-03 12:31:00+00'),
    (15, 'default', 'Chapter 4 has a footnote that is longer than chapter 3.', null, null, '2026-03-03 19:22:00+00'),
    (16, 'harbor.ferry', 'Summer timetable is online. Last boat back is at 22:30 from May.', null, null, '2026-03-04 09:00:00+00'),
    (17, 'default', 'Half past ten! That makes dinner on the island possible.', null, 16, '2026-03-04 09:18:00+00'),
    (18, 'ana.ferreira', 'Table for six?', 17, null, '2026-03-04 09:25:00+00'),
    (19, 'chidi.okafor', 'Seven, I am not missing this.', 18, null, '2026-03-04 09:26:00+00'),
    (20, 'mei.tanaka', 'Finished the mural behind the station. Two winters, 61 colours, one ladder.', null, null, '2026-03-05 16:40:00+00'),
    (21, 'default', 'It is wonderful. I walked past it twice on purpose.', 20, null, '2026-03-05 17:03:00+00'),
    (22, 'tomas.novak', 'Go and see this before it rains.', null, 20, '2026-03-05 17:15:00+00'),
    (23, 'bakery.north', 'Closed on Monday: the oven turns forty and gets a new door.', null, null, '2026-03-06 15:00:00+00'),
    (24, 'default', 'Draft of a thought, to be deleted once I have had coffee.', null, null, '2026-03-07 06:55:00+00'),
    (25, 'tomas.novak', 'Backups tested today. All of them. I recommend the feeling.', null, null, '2026-03-07 14:10:00+00');
alter table social.tweet alter column id restart with 26;

insert into social.tweet_like (account_id, tweet_id) values
    ('ana.ferreira', 1), ('default', 1), ('mei.tanaka', 1), ('tomas.novak', 1),
    ('ana.ferreira', 6), ('harbor.ferry', 6), ('mei.tanaka', 8),
    ('chidi.okafor', 9), ('chidi.okafor', 11), ('default', 11), ('mei.tanaka', 11),
    ('ana.ferreira', 14), ('mei.tanaka', 14), ('chidi.okafor', 15),
    ('default', 16), ('ana.ferreira', 17), ('chidi.okafor', 17),
    ('ana.ferreira', 20), ('bakery.north', 20), ('chidi.okafor', 20), ('default', 20), ('tomas.novak', 20),
    ('mei.tanaka', 21), ('ana.ferreira', 23), ('chidi.okafor', 25);

insert into social.retweet (account_id, tweet_id) values
    ('ana.ferreira', 20), ('harbor.ferry', 20), ('chidi.okafor', 16), ('default', 12), ('mei.tanaka', 23);

insert into social.bookmark (account_id, tweet_id) values
    ('default', 16), ('default', 12), ('ana.ferreira', 16), ('chidi.okafor', 12);

insert into social.follow (account_id, target_user_id) values
    ('default', 2), ('default', 3), ('default', 6),
    ('ana.ferreira', 1), ('ana.ferreira', 3), ('ana.ferreira', 5), ('ana.ferreira', 6),
    ('bakery.north', 2), ('bakery.north', 6),
    ('chidi.okafor', 1), ('chidi.okafor', 5), ('chidi.okafor', 7),
    ('harbor.ferry', 3),
    ('mei.tanaka', 1), ('mei.tanaka', 2), ('mei.tanaka', 3),
    ('tomas.novak', 4), ('tomas.novak', 6);

insert into social.media (id, account_id, media_type, data, created_at) overriding system value values
    (1, 'mei.tanaka', 'image/gif', '\x47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b',
     '2026-03-05 16:39:00+00');
alter table social.media alter column id restart with 2;
