create table {s}.acct (id int primary key, name text, "Mail Box" text, doc jsonb, secret text, state text not null default 'open',
    updated_at timestamptz not null default now());
create table {s}.inv (id int generated always as identity primary key, acct int references {s}.acct on delete cascade, total numeric,
    state text not null default 'open');
create table {s}.line (id int primary key, inv int references {s}.inv on delete cascade, what text);
create table {s}.sums (state text primary key, total numeric not null default 0, n int not null default 0);
create table {s}.trail (id bigint generated always as identity primary key, what text, at timestamptz default clock_timestamp());
create function {s}.touch() returns trigger language plpgsql as $$ begin new.updated_at := clock_timestamp(); return new; end $$;
create trigger touch before update on {s}.acct for each row execute function {s}.touch();
create function {s}.sum() returns trigger language plpgsql as $$ begin
    if tg_op <> 'INSERT' then update {s}.sums set total = total - old.total, n = n - 1 where state = old.state; end if;
    if tg_op <> 'DELETE' then update {s}.sums set total = total + new.total, n = n + 1 where state = new.state; end if;
    return null; end $$;
create function {s}.tell() returns trigger language plpgsql as $$ begin
    insert into {s}.trail (what) values (new.id || ' is ' || new.state); return null; end $$;
create trigger tell after update of state on {s}.acct for each row execute function {s}.tell();
insert into {s}.acct (id, name, "Mail Box", doc, secret)
    select n, 'a' || n, 'm' || n % 7, jsonb_build_object('mail', jsonb_build_object('daily', n), 'x', 1), 's' from generate_series(1, 40) n;
insert into {s}.inv (acct, total) select 1 + n % 40, n from generate_series(1, 110) n;
insert into {s}.line select n, 1 + n % 110, 'x' from generate_series(1, 280) n;
insert into {s}.sums select state, sum(total), count(*) from {s}.inv group by state union all select 'paid', 0, 0;
create trigger sum after insert or update of state or delete on {s}.inv for each row execute function {s}.sum();
select countersign.track('{s}.acct', sensitive => array['secret']);
select countersign.track(t) from unnest(array['{s}.inv', '{s}.line', '{s}.sums']::regclass[]) t;
select countersign.track('{s}.trail', is_log => true);
analyze {s}.acct, {s}.inv, {s}.line;
