-- Demo data for manifests/studio/schema.sql: the same rows, ids and times on every machine. The bookings to come are in June
-- 2099: the 2nd is a Tuesday.

insert into studio.studio (tenant_id, name, time_zone, currency) values
    ('default', 'Lumen Studio', 'Europe/Lisbon', 'EUR'),
    ('harbor.frames', 'Harbor Frames', 'America/Halifax', 'CAD'),
    ('north.light', 'North Light Portraits', 'Europe/Stockholm', 'SEK');

insert into studio.working_hours (tenant_id, weekday, opens, closes) values
    ('default', 1, null, null),
    ('default', 2, '09:00', '18:00'),
    ('default', 3, '09:00', '18:00'),
    ('default', 4, '09:00', '18:00'),
    ('default', 5, '09:00', '18:00'),
    ('default', 6, '10:00', '16:00'),
    ('default', 7, null, null),
    ('harbor.frames', 1, '08:00', '16:00'),
    ('harbor.frames', 2, '08:00', '16:00'),
    ('harbor.frames', 3, '08:00', '16:00'),
    ('harbor.frames', 4, '08:00', '16:00'),
    ('harbor.frames', 5, '08:00', '12:00'),
    ('harbor.frames', 6, null, null),
    ('harbor.frames', 7, null, null),
    ('north.light', 1, '10:00', '19:00'),
    ('north.light', 2, '10:00', '19:00'),
    ('north.light', 3, '10:00', '19:00'),
    ('north.light', 4, '10:00', '19:00'),
    ('north.light', 5, '10:00', '19:00'),
    ('north.light', 6, null, null),
    ('north.light', 7, null, null);

insert into studio.package (tenant_id, package_id, title, description, price, duration_minutes) overriding system value values
    ('default', 1, 'Portrait, one hour', 'One person, one backdrop, ten edited pictures.', 120.00, 60),
    ('default', 2, 'Family afternoon', 'Up to six people and a dog. Bring a second shirt.', 240.00, 120),
    ('default', 3, 'Passport pictures', 'Four prints while you wait.', 15.00, 15),
    ('harbor.frames', 4, 'Boat and crew', 'On your own deck, at first light.', 310.00, 90),
    ('harbor.frames', 5, 'Headshot', 'For the company''s page.', 85.00, 30),
    ('north.light', 6, 'Portrait by the window', 'Daylight only, so mind the season.', 1400.00, 60),
    ('north.light', 7, 'Wedding consultation', 'Coffee, a calendar, and the albums of last year.', 0.00, 45);
alter table studio.package alter column package_id restart with 8;

-- Each is one pixel.
insert into studio.package_photo (tenant_id, photo_id, package_id, position, caption, media_type, data) overriding system value
select tenant_id, photo_id, package_id, position, caption, 'image/gif',
    '\x47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b'
from (values
    ('default', 1, 1, 1, 'A woman laughs at somebody beside the camera'),
    ('default', 2, 1, 2, 'A man with a violin, in black and white'),
    ('default', 3, 1, 3, 'Hands on a table'),
    ('default', 4, 2, 1, 'Five people and a dog that looks elsewhere'),
    ('harbor.frames', 5, 4, 1, 'A trawler and its crew of four'),
    ('harbor.frames', 6, 4, 2, 'The same crew, wet'),
    ('north.light', 7, 6, 1, 'A girl in a window seat, snow behind the glass')
) as photo (tenant_id, photo_id, package_id, position, caption);
alter table studio.package_photo alter column photo_id restart with 8;

-- One of them is over: it came to be before it was.
alter table studio.booking disable trigger booking_in_time;
insert into studio.booking (tenant_id, booking_id, package_id, package_title, customer, starts_at, ends_at)
overriding system value values
    ('default', 1, 3, 'Passport pictures', 'Inês Duarte', '2026-03-03 10:00+00', '2026-03-03 10:15+00'),
    ('default', 2, 1, 'Portrait, one hour', 'Rui Marques', '2099-06-02 10:00+01', '2099-06-02 11:00+01'),
    ('default', 3, 2, 'Family afternoon', 'The Costa family', '2099-06-02 14:00+01', '2099-06-02 16:00+01'),
    ('default', 4, 1, 'Portrait, one hour', 'Beatriz Lopes', '2099-06-03 09:00+01', '2099-06-03 10:00+01'),
    ('harbor.frames', 5, 4, 'Boat and crew', 'Captain MacNeil', '2099-06-02 08:00-03', '2099-06-02 09:30-03'),
    ('north.light', 6, 6, 'Portrait by the window', 'Elsa Lindqvist', '2099-06-02 11:00+02', '2099-06-02 12:00+02');
alter table studio.booking enable trigger booking_in_time;
alter table studio.booking alter column booking_id restart with 7;
