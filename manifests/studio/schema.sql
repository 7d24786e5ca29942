-- The schema behind manifests/studio.toml. Run once on a database without it, in one transaction.
--
-- Many tenants share these tables. Three things keep them apart, each without the others: every statement of the manifest
-- names the tenant, every foreign key includes it, and row level security (at the end) hides what is another tenant's.
--
-- Nothing cascades: what a tool deletes, its statements name.

create schema studio;
comment on schema studio is 'Bookings of photo studios. Every row belongs to a tenant: one studio, one account.';

create table studio.studio (
    tenant_id text primary key check (tenant_id <> ''),
    name      text not null check (name <> ''),
    time_zone text not null check (timestamptz '2000-01-01 00:00+00' at time zone time_zone is not null),
    currency  text not null check (currency ~ '^[A-Z]{3}$')
);
comment on table studio.studio is 'The studios. Each is a tenant.';
comment on column studio.studio.tenant_id is 'The account of the countersign principal that acts for this studio.';
comment on column studio.studio.name is 'The name that is shown.';
comment on column studio.studio.time_zone is 'Where its working hours are to be understood, such as Europe/Lisbon.';
comment on column studio.studio.currency is 'What its prices are in, by ISO 4217, such as EUR.';

create table studio.package (
    tenant_id        text          not null references studio.studio (tenant_id),
    package_id       bigint        not null generated always as identity,
    title            text          not null check (char_length(title) between 1 and 100),
    description      text          not null check (char_length(description) <= 2000),
    price            numeric(10,2) not null check (price >= 0),
    duration_minutes integer       not null check (duration_minutes between 15 and 720),
    primary key (tenant_id, package_id),
    constraint package_title_taken unique (tenant_id, title)
);
comment on table studio.package is 'What customers can book.';
comment on column studio.package.tenant_id is 'Whose package.';
comment on column studio.package.package_id is 'The number of the package: what the tools take as package_id.';
comment on column studio.package.title is '1 to 100 characters, once in each studio.';
comment on column studio.package.description is 'For customers; may be empty.';
comment on column studio.package.price is 'In the currency of the studio.';
comment on column studio.package.duration_minutes is 'How long a session takes.';

create table studio.package_photo (
    tenant_id  text    not null,
    photo_id   bigint  not null generated always as identity,
    package_id bigint  not null,
    position   integer not null check (position >= 1),
    caption    text    not null,
    media_type text    not null check (media_type in ('image/gif', 'image/jpeg', 'image/png', 'image/webp')),
    data       bytea   not null check (octet_length(data) between 1 and 1000000),
    primary key (tenant_id, photo_id),
    constraint package_photo_package foreign key (tenant_id, package_id) references studio.package (tenant_id, package_id),
    -- Deferrable, so that one statement can move several photos up.
    constraint package_photo_position unique (tenant_id, package_id, position) deferrable
);
comment on table studio.package_photo is 'The photos of packages. The first one by position is the cover.';
comment on column studio.package_photo.tenant_id is 'Whose photo.';
comment on column studio.package_photo.photo_id is 'The number of the photo.';
comment on column studio.package_photo.package_id is 'The package that it shows.';
comment on column studio.package_photo.position is 'Its place among the photos of the package, from 1 without gaps. 1 is the cover.';
comment on column studio.package_photo.caption is 'What it shows, for who cannot see it; may be empty.';
comment on column studio.package_photo.media_type is 'The MIME type, such as image/jpeg.';
comment on column studio.package_photo.data is 'The content: 1 to 1,000,000 bytes.';

create table studio.working_hours (
    tenant_id text    not null references studio.studio (tenant_id),
    weekday   integer not null check (weekday between 1 and 7),
    opens     time,
    closes    time,
    primary key (tenant_id, weekday),
    constraint working_hours_open_before_close check (num_nulls(opens, closes) = 2 or num_nulls(opens, closes) = 0 and opens < closes)
);
comment on table studio.working_hours is 'When a studio works: seven rows each, in the time zone of the studio.';
comment on column studio.working_hours.tenant_id is 'Whose hours.';
comment on column studio.working_hours.weekday is '1 is Monday, 7 is Sunday.';
comment on column studio.working_hours.opens is 'From when sessions take place; NULL if it is closed on this day.';
comment on column studio.working_hours.closes is 'Until when the last one must be over; NULL if it is closed on this day.';

-- A range of one text, so that the constraint below can compare tenants: a GiST index takes ranges of any type without an
-- extension, and a text by itself it does not take.
create type studio.tenant_range as range (subtype = text);
comment on type studio.tenant_range is 'For the constraint booking_overlap.';

create table studio.booking (
    tenant_id     text        not null references studio.studio (tenant_id),
    booking_id    bigint      not null generated always as identity,
    package_id    bigint,
    package_title text        not null check (package_title <> ''),
    customer      text        not null check (char_length(customer) between 1 and 100),
    starts_at     timestamptz not null,
    ends_at       timestamptz not null,
    primary key (tenant_id, booking_id),
    constraint booking_package foreign key (tenant_id, package_id) references studio.package (tenant_id, package_id),
    constraint booking_ends_after_start check (starts_at < ends_at),
    constraint booking_overlap exclude using gist (
        studio.tenant_range(tenant_id, tenant_id, '[]') with &&,
        tstzrange(starts_at, ends_at, '[)') with &&
    )
);
comment on table studio.booking is 'Sessions that customers have booked. A studio has one at a time (constraint booking_overlap), within its working hours (trigger booking_in_time).';
comment on column studio.booking.tenant_id is 'Whose booking.';
comment on column studio.booking.booking_id is 'The number of the booking.';
comment on column studio.booking.package_id is 'The package; NULL if the session is over and the package has been deleted since.';
comment on column studio.booking.package_title is 'The title of the package when it was booked.';
comment on column studio.booking.customer is 'Who comes: 1 to 100 characters.';
comment on column studio.booking.starts_at is 'When the session begins.';
comment on column studio.booking.ends_at is 'When the session is over.';
create index booking_package_id on studio.booking (tenant_id, package_id);

-- A CHECK cannot look into studio.working_hours. The lock keeps the hours as they are until the booking is committed, and
-- lets bookings of one weekday take turns: two that overlap would otherwise wait for each other in booking_overlap.
create function studio.refuse_booking_out_of_time() returns trigger
language plpgsql
set search_path = ''
as $$
begin
    if new.starts_at <= now() then
        raise check_violation using
            message = 'a new booking begins in the future',
            schema = 'studio', table = 'booking', constraint = 'booking_in_time';
    end if;
    perform from studio.studio s join studio.working_hours w on w.tenant_id = s.tenant_id
    where s.tenant_id = new.tenant_id
      and w.weekday = extract(isodow from new.starts_at at time zone s.time_zone)
      and (new.starts_at at time zone s.time_zone)::time >= w.opens
      and new.ends_at at time zone s.time_zone <= (new.starts_at at time zone s.time_zone)::date + w.closes
    for no key update of w;
    if not found then
        raise check_violation using
            message = 'the studio does not work then: see studio.working_hours, in the time zone of studio.studio',
            schema = 'studio', table = 'booking', constraint = 'booking_in_time';
    end if;
    return new;
end
$$;
comment on function studio.refuse_booking_out_of_time() is 'The check of studio.booking that new ones are in the future and within the working hours.';

create trigger booking_in_time before insert or update of tenant_id, starts_at, ends_at on studio.booking
    for each row execute function studio.refuse_booking_out_of_time();

-- For every role but the tables' owner: a row is there, and can be written, only for the account that the server has set for
-- the transaction. Without the setting there are no rows. Whoever writes SQL of their own can set it, too: these policies
-- stand behind the statements of the manifest, and are no wall by themselves.
alter table studio.studio enable row level security;
alter table studio.package enable row level security;
alter table studio.package_photo enable row level security;
alter table studio.working_hours enable row level security;
alter table studio.booking enable row level security;
create policy tenant on studio.studio using (tenant_id = current_setting('countersign.account_id', true));
create policy tenant on studio.package using (tenant_id = current_setting('countersign.account_id', true));
create policy tenant on studio.package_photo using (tenant_id = current_setting('countersign.account_id', true));
create policy tenant on studio.working_hours using (tenant_id = current_setting('countersign.account_id', true));
create policy tenant on studio.booking using (tenant_id = current_setting('countersign.account_id', true));
