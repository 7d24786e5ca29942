create schema shop;
create type shop.address as (street text, city text);
create table shop.customers (
    id int primary key, name text not null, email text, age int, tags text[], home shop.address, extra jsonb,
    spent numeric, note text, name_key text generated always as (lower(name)) stored
);
create table shop.orders (id int primary key, customer_id int references shop.customers, total numeric, note text, age int);
create table shop.events (id int, secret text, kind text) partition by range (id);
create table shop.events_1 partition of shop.events for values from (0) to (50);
create table shop.events_2 (kind text, secret text, id int);
alter table shop.events attach partition shop.events_2 for values from (50) to (1000);
create table shop.party (id int, secret text);
create table shop.person (born date) inherits (shop.party);
create materialized view shop.summary as select id, 'x'::text as digest from shop.customers;
create index on shop.customers (email);
create index on shop.customers (age, id);
create index on shop.events (secret);
create unique index on shop.customers (lower(email));
create view shop.contacts as select id, name, email as address, age from shop.customers;
create view shop.barrier with (security_barrier) as select id, name, email as address from shop.customers;
create view shop.adults as select id, name from shop.customers where age >= 18;
create view shop.labels as select id, name || ' <' || email || '>' as label from shop.customers;
create function shop.email_of(int) returns text language sql stable as 'select email from shop.customers where id = $1';
create function shop.emails() returns setof text language sql stable as 'select email from shop.customers';
create function shop."odd ""name"() returns text language sql stable as 'select email from shop.customers limit 1';
create function public.email_of_order(shop.orders) returns text language sql stable as 'select email from shop.customers where id = $1.customer_id';
create function shop.top(int) returns setof int language sql stable as 'select 1 from generate_series(1, 200) limit $1';
create function shop.ages() returns int language plpgsql as 'begin return (select sum(age) from shop.customers); end';
create function shop.slug(text) returns text language plpgsql immutable as 'begin return replace(lower($1), '' '', ''-''); end';
create function shop.joined(text, text) returns text language sql stable as 'select concat($1, $2)';
create aggregate shop.join_all(text) (sfunc = shop.joined, stype = text, initcond = '');
create function shop.same(text, text) returns boolean language sql immutable as 'select $1 = $2';
create operator shop.=== (leftarg = text, rightarg = text, function = shop.same);
grant usage on schema shop to public;
grant select on all tables in schema shop to public;
