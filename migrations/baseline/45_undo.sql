-- Undo of one write or of several at once:
--
--   the attempt with undo_of = writes | claim | undo(writes) -> {"status": "conflict", ..}: ROLLBACK, fail with this detail
--                                             | SET CONSTRAINTS ALL IMMEDIATE | finish | COMMIT
--
-- `undo` works with the rights of the login, so triggers and policies apply as to any write. The proof (`prove_undo`, called by
-- `finish`) has the ledger's rights and reads recorded effects only: what the undo itself changed has to be the exact inverse. So no
-- right of a login marks a write as reversed that was not, and no code of a table's owner runs with the ledger's rights.

-- The conditions under which a row of the table ("!t", which no column is called) has the key of an image (u, its columns are named by `letter`).
create function countersign.key_match(t countersign.tracked, letter text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    return (select string_agg(format('"!t".%I = u.%s%s', k, letter, array_position(t.columns, k)), ' and ') from unnest(t.key_columns) k);
end $$;
comment on function countersign.key_match(countersign.tracked, text) is 'SQL: a row of the table has the key of an image.';

create function countersign.image_columns(t countersign.tracked, letter text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    return (select string_agg(letter || n, ', ' order by n) from generate_subscripts(t.columns, 1) n);
end $$;
comment on function countersign.image_columns(countersign.tracked, text) is 'SQL: names for the columns of an image.';

create function countersign.row_image_expression(t countersign.tracked) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    if t.sensitive = '{}' and t.unstored = '{}' then
        return '"!t"';
    end if;
    return (select 'row(' || string_agg(case when c = any (t.sensitive || t.unstored) then 'null' else format('"!t".%I', c) end, ', ' order by o) || ')'
            from unnest(t.columns) with ordinality u (c, o));
end $$;
comment on function countersign.row_image_expression(countersign.tracked) is 'SQL: what of a row is in its image.';

create function countersign.cast_images(of_type anyelement, images text[]) returns anyarray
language plpgsql stable set search_path = pg_catalog, pg_temp set timezone = utc set datestyle = iso, ymd set intervalstyle = postgres
set extra_float_digits = 1 set bytea_output = hex set lc_monetary = 'C' set xmlbinary = base64 as $$
declare
    result  alias for $0;
begin
    -- An assignment casts by input functions where nothing else does, and its plan is kept for each type.
    result := images;
    return result;
end $$;
comment on function countersign.cast_images(anyelement, text[]) is 'Images as rows of their table, whatever the settings of the session.';

create function countersign.current_rows(t countersign.tracked, images text[], is_locking boolean, path text)
returns table (n bigint, image text, changed_at timestamptz)
language plpgsql set search_path = pg_catalog, pg_temp set timezone = utc set datestyle = iso, ymd set intervalstyle = postgres
set extra_float_digits = 1 set bytea_output = hex set lc_monetary = 'C' set xmlbinary = base64
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    query  text := format(
        'select u.ord, pg_catalog.textin(pg_catalog.record_out(%s)), %s '
        'from rows from (pg_catalog.unnest(countersign.cast_images(null::%s, $1))) with ordinality u (%s, ord) join %s "!t" on %s order by %s %s',
        countersign.row_image_expression(t), case when current_setting('track_commit_timestamp') = 'on' then 'pg_catalog.pg_xact_commit_timestamp("!t".xmin)' else 'null::timestamptz' end,
        t.name, countersign.image_columns(t, 'c'), t.name, countersign.key_match(t, 'c'),
        (select string_agg(format('"!t".%I', k), ', ') from unnest(t.key_columns) k), case when is_locking then 'for update of "!t"' else '' end);
begin
    -- Until the end of the function: what policies call finds what it finds in the session.
    perform set_config('search_path', path, true);
    return query execute query using images;
end $$;
comment on function countersign.current_rows(countersign.tracked, text[], boolean, text) is
    'The rows that have the keys of images, as they are now; locked in the order of their keys if asked.';

create function countersign.execute_in(path text, statement text, images text[], matched text[]) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    done  bigint;
begin
    -- Until the end of the function: triggers of the table find what they find in any statement of the session.
    perform set_config('search_path', path, true);
    execute statement using images, matched;
    get diagnostics done = row_count;
    return done;
end $$;
comment on function countersign.execute_in(text, text, text[], text[]) is 'Runs a statement of `undo` with the search_path of the session.';

create function countersign.apply_images(t countersign.tracked, kind text, images text[], matched text[], path text) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    given      text := format('rows from (pg_catalog.unnest(countersign.cast_images(null::%1$s, $1)), '
                              'pg_catalog.unnest(countersign.cast_images(null::%1$s, $2))) u (%2$s, %3$s)',
                              t.name, countersign.image_columns(t, 'c'), countersign.image_columns(t, 'm'));
    statement  text;
    part       record;
    done       bigint := 0;
begin
    if kind = 'D' then
        statement := format('delete from %s "!t" using %s where %s', t.name, given, countersign.key_match(t, 'm'));
    elsif kind = 'I' then
        select format('insert into %s (%s) overriding system value select %s from %s', t.name,
                      string_agg(format('%I', c), ', ' order by o), string_agg('u.c' || o, ', ' order by o), given)
        into statement
        from unnest(t.columns) with ordinality u (c, o) where c <> all (t.computed);
    else
        -- A statement for each set of columns: no trigger OF a column fires that the write did not change, and no right to it is needed.
        for part in execute (
            select format('select x.changed, array_agg(x.image) as images, array_agg(x.matched) as matched '
                          'from (select array_remove(array[%s], null) as changed, u.image, u.matched '
                          'from rows from (unnest(countersign.cast_images(null::%s, $1)), unnest(countersign.cast_images(null::%2$s, $2)), '
                          'unnest($1), unnest($2)) u (%s, %s, image, matched)) x group by x.changed order by x.changed',
                          string_agg(format('case when record_image_ne(row(u.c%1$s), row(u.m%1$s)) then %1$s end', o), ', '), t.name,
                          countersign.image_columns(t, 'c'), countersign.image_columns(t, 'm'))
            from generate_subscripts(t.columns, 1) o) using images, matched
        loop
            select format('update %s "!t" set (%s) = row (%s) from %s where %s', t.name,
                          string_agg(format('%I', c), ', ' order by o), string_agg('u.c' || o, ', ' order by o), given,
                          countersign.key_match(t, 'm'))
            into statement
            from unnest(t.columns) with ordinality u (c, o)
            where o = any (part.changed) and c <> all (t.fixed) and c <> all (t.sensitive);
            continue when statement is null;
            done := done + countersign.execute_in(path, statement, part.images, part.matched);
        end loop;
        return done;
    end if;
    return countersign.execute_in(path, statement, images, matched);
end $$;
comment on function countersign.apply_images(countersign.tracked, text, text[], text[], text) is
    'On the rows with the keys of `matched`: D deletes, U sets the columns in which the images differ. I inserts the images.';

-- The search_path is that of the session, as in `current_rows`.
create function countersign.row_image(shown record) returns text
language plpgsql stable set timezone = utc set datestyle = iso, ymd set intervalstyle = postgres
set extra_float_digits = 1 set bytea_output = hex set lc_monetary = 'C' set xmlbinary = base64 as $$
begin
    return pg_catalog.textin(pg_catalog.record_out(shown));
end $$;
comment on function countersign.row_image(record) is 'The image of a row, whatever the settings of the session.';

-- A function for each table, so that its statements are planned once a session. One statement compares and changes the row. The casts have
-- the ledger's search_path, and the statement, whose triggers may look names up, has that of the session.
create function countersign.restoring_function(of_shape integer) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $fn$
declare
    t         countersign.tracked;
    settable  text[];
    -- SQL: the row has the key of the image after the change, or before; a column is another one in both, and then this is said.
    is_same   text := '"!t".%1$I = "!after".%1$I';
    is_taken  text := '"!t".%1$I = "!before".%1$I';
    differs   text := 'case when pg_catalog.record_image_ne(row("!before".%1$I), row("!after".%1$I)) then %2$L end';
begin
    select k.* into strict t from countersign.tracked k where k.shape = of_shape;
    settable := array(select c from unnest(t.columns) with ordinality u (c, o) where c <> all (t.fixed || t.sensitive || t.key_columns) order by o);
    select string_agg(format(is_same, k), ' and '), string_agg(format(is_taken, k), ' and ') into is_same, is_taken from unnest(t.key_columns) k;
    is_same := is_same || ' and countersign.row_image(' || countersign.row_image_expression(t) || ') operator(pg_catalog.=) after';
    return format($definition$
create or replace function countersign.%I(of_shape integer, before text, after text, path text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as %L$definition$, 'restore_of_' || t.relation, format($body$
#variable_conflict use_variable
declare
    "!before"   %1$s;
    "!after"    %1$s;
    "!columns"  text;     -- What the write changed: no trigger OF another column fires, and no right to it is needed.
    "!done"     bigint;
begin
    if of_shape <> %2$s then
        return false;
    end if;
    if before is not null then
        "!before" := (countersign.cast_images(null::%1$s, array[before]))[1];
    end if;
    if after is not null then
        "!after" := (countersign.cast_images(null::%1$s, array[after]))[1];
    end if;
    if before is not null and after is not null then
        "!columns" := concat_ws(', ', %3$s);
    end if;
    path := set_config('search_path', path, true);
    if before is null then
        delete from %1$s "!t" where %4$s;
    elsif after is null then
        insert into %1$s (%5$s) overriding system value
        select %6$s where not exists (select from %1$s "!t" where %7$s);%8$s
    else
        return false;
    end if;
    get diagnostics "!done" = row_count;
    return "!done" operator(pg_catalog.=) 1;
end $body$,
        t.name, t.shape,
        coalesce((select string_agg(format(differs, c, quote_ident(c)), ', ' order by o) from unnest(settable) with ordinality u (c, o)), 'null'),
        is_same,
        (select string_agg(quote_ident(c), ', ' order by o) from unnest(t.columns) with ordinality u (c, o) where c <> all (t.computed)),
        (select string_agg(format('"!before".%I', c), ', ' order by o) from unnest(t.columns) with ordinality u (c, o) where c <> all (t.computed)),
        is_taken,
        -- One column is the most frequent case. The statement for several is planned each time.
        (select string_agg(format(E'\n    elsif "!columns" operator(pg_catalog.=) %L then\n        update %s "!t" set %I = "!before".%3$I where %s;',
                                  quote_ident(c), t.name, c, is_same), '' order by o)
                || format(E'\n    elsif "!columns" operator(pg_catalog.<>) '''' then\n        execute pg_catalog.concat(%L, "!columns", '') = row ('', '
                          'pg_catalog.concat_ws('', '', %s), %L)\n        using "!before", "!after", after;',
                          format('update %s "!t" set (', t.name), string_agg(format(differs, c, '($1).' || quote_ident(c)), ', ' order by o),
                          ') where ' || (select string_agg(format('"!t".%1$I = ($2).%1$I', k), ' and ') from unnest(t.key_columns) k)
                          || ' and countersign.row_image(' || countersign.row_image_expression(t) || ') operator(pg_catalog.=) $3')
         from unnest(settable) with ordinality u (c, o))));
end $fn$;
comment on function countersign.restoring_function(integer) is
    'The text of the function that restores a row of a tracked table, if it is still what a write left. Null for a table without a key.';

create function countersign.restore_row(w countersign.net_change, path text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    t        countersign.tracked;
    is_done  boolean;
    image    text;
begin
    select k.* into t from countersign.tracked k where k.shape = w.shape;
    -- The statements for sets of rows lock them FOR UPDATE, which needs a right to UPDATE and the policies for it.
    if w.is_broken or w.before is not null and w.secret_before is distinct from w.secret_after or t.key_columns is null or not t.is_current
       or to_regclass(t.name) is distinct from t.relation::regclass or not countersign.has_current_shape(t)
       or row_security_active(t.relation) or not has_any_column_privilege(t.relation, 'UPDATE')
    then
        return false;
    end if;
    begin
        execute format('select countersign.restore_of_%s($1, $2, $3, $4)', t.relation) into is_done using w.shape, w.before, w.after, path;
        -- A trigger may have changed the row after it was put back.
        if is_done and w.before is not null
           and exists (select from pg_trigger g where g.tgrelid = t.relation and not g.tgisinternal and g.tgname not like '!countersign%')
        then
            select r.image into image from countersign.current_rows(t, array[w.before], false, path) r;
            is_done := not found or countersign.same_image(t.shape, image, w.before, t.sensitive || t.maintained);
        end if;
        if is_done is not true then
            raise exception 'the row is not as the write left it' using errcode = 'CS002';
        end if;
        return true;
    exception
        when transaction_rollback or lock_not_available then
            raise;
        -- The statements for sets of rows know the conflicts, and do the work for a login that may not call the function.
        when others then
            return false;
    end;
end $$;
comment on function countersign.restore_row(countersign.net_change, text) is
    'Restores a row that is still what a write left, with the rights of the caller. False: nothing was changed, for whatever reason.';

create function countersign.describe_write(write uuid) returns json
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select json_build_object('correlation_id', r.correlation_id, 'completed_at', r.completed_at, 'tool_name', r.tool_name,
                             'account_id', r.account_id, 'actor', r.actor, 'session_id', r.session_id)
    from countersign.record r where r.correlation_id = write
$$;
comment on function countersign.describe_write(uuid) is 'A write, as a conflict names it.';

-- The sub-selects look each write up by an index, however many others the ledger has.
create function countersign.refused_writes(writes uuid[]) returns json[]
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    return (
        select array_agg(json_build_object('code', case when r.status is null then 'image_missing' when r.reversed_by is not null then 'already_reversed'
                                                        when r.status <> 'success' then 'irreversible' else 'image_missing' end,
                                           'write', coalesce(countersign.describe_write(r.write), json_build_object('correlation_id', r.write)),
                                           'changed_by', countersign.describe_write(r.reversed_by)))
        from (select w.write, r.status, r.rows_affected,
                     (select v.reversed_by from countersign.reversal v where v.correlation_id = w.write) as reversed_by,
                     (select e.position from countersign.effect e where e.correlation_id = w.write limit 1) as position
              from unnest(writes) w (write) left join countersign.record r on r.correlation_id = w.write offset 0) r
        where r.status is distinct from 'success' or r.reversed_by is not null or r.position is null and r.rows_affected is distinct from 0);
end $$;
comment on function countersign.refused_writes(uuid[]) is
    'Writes that are no success, were undone before, or have no effects on record, as conflicts; null for none.';

create function countersign.describe_conflict(
    t countersign.tracked, w countersign.net_change, code text, image_now text, changed_at timestamptz, writes uuid[]
) returns json language sql stable set search_path = pg_catalog, pg_temp as $$
    select json_build_object(
        'code', code, 'table', t.name, 'key', w.key::json, 'write', countersign.describe_write(w.writer),
        'columns', (select json_agg(json_build_object('name', c.name, 'to_restore', countersign.field_value(c.b),
                                                      'left', countersign.field_value(c.l), 'now', countersign.field_value(c.n)))
                    from unnest(t.columns, countersign.fields(w.before), countersign.fields(w.after), countersign.fields(image_now)) c (name, b, l, n)
                    where (c.b, c.l) is distinct from (c.l, c.n) and c.name <> all (t.sensitive)),
        'changed_by', coalesce(
            (select coalesce(countersign.describe_write(e.correlation_id), json_build_object('outside', e.origin, 'at', e.changed_at))
             from countersign.effects_of_row(w.relation, w.key) e
             where e.position > w.last_position and (e.correlation_id is null or e.correlation_id <> all (writes))
             order by e.position desc limit 1),
            json_build_object('outside', 'outside countersign', 'at', changed_at)))
$$;
comment on function countersign.describe_conflict(countersign.tracked, countersign.net_change, text, text, timestamptz, uuid[]) is
    'One conflict: code, write, table, key, columns (to restore, left by the write, now), and what changed the row.';

create function countersign.undo_conflicts(
    writes uuid[], net countersign.net_change[], is_locking boolean, path text
) returns json[]
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    t          countersign.tracked;
    conflicts  json[] := '{}';
    differing  json[];
    rows       countersign.net_change[];
    reason     text;
begin
    for t in
        select distinct on (k.relation) k.* from unnest(net) w join countersign.tracked k on k.shape = w.shape order by k.relation, k.shape
    loop
        reason := case when t.key_columns is null then 'irreversible'
                       when not t.is_current or to_regclass(t.name) is distinct from t.relation::regclass or not countersign.has_current_shape(t)
                       then 'schema_changed' end;
        if reason is not null then
            conflicts := conflicts || json_build_object('code', reason, 'table', t.name);
            continue;
        end if;
        rows := array(select w from unnest(net) w where w.relation = t.relation order by w.key);
        with w as materialized (
            select u.*, u.ord as place from unnest(rows) with ordinality u (relation, shape, key, before, after, secret_before, secret_after,
                                                                            is_broken, last_position, writer, ord)
        ), now as materialized (
            select r.* from countersign.current_rows(t, array(select coalesce(w.after, w.before) from w order by w.place), is_locking, path) r
        ), compared as (
            select w.place, now.image, now.changed_at, case
                when w.is_broken then 'changed_since'
                when w.after is null and now.n is not null then 'key_taken'
                -- A policy may hide the row as well.
                when w.after is not null and now.n is null then
                    case when row_security_active(t.relation) then 'not_permitted' else 'deleted_since' end
                when w.after is not null and now.image is distinct from w.after
                     and not countersign.same_image(t.shape, now.image, w.after, t.sensitive) then 'changed_since'
                when w.before is not null and w.secret_before is distinct from w.secret_after then 'image_missing' end as code
            from w left join now on now.n = w.place
        )
        select array_agg(countersign.describe_conflict(t, rows[c.place], c.code, c.image, c.changed_at, writes) order by c.place)
        into differing from compared c where c.code is not null;
        conflicts := conflicts || coalesce(differing, '{}');
    end loop;
    return conflicts;
end $$;
comment on function countersign.undo_conflicts(uuid[], countersign.net_change[], boolean, text) is
    'Compares each row that writes left with the row now. Runs with the rights of the caller.';

create function countersign.moved_rows(writes uuid[], net countersign.net_change[]) returns table (relation oid, key_now text, key_before text)
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
    with recursive renaming as materialized (
        select e.relation, e.key_before, e.key, e.position from countersign.effect e
        where e.correlation_id = any (writes) and e.key_before is not null
    ), vacated as materialized (
        select w.relation, w.key from unnest(net) w where w.before is not null and w.after is null
          and exists (select from renaming r where r.relation = w.relation and r.key_before = w.key)
    ), path as (
        select v.relation, v.key as origin, v.key, 0::bigint as position from vacated v
        union all
        select p.relation, p.origin, n.key, n.position from path p
        cross join lateral (select r.key, r.position from renaming r
                            where r.relation = p.relation and r.key_before = p.key and r.position > p.position
                            order by r.position limit 1) n
    )
    select distinct on (p.relation, w.key) p.relation, w.key, p.origin from path p
    join unnest(net) w on w.relation = p.relation and w.key = p.key and w.before is null and w.after is not null
    where p.position > 0 order by p.relation, w.key, p.position desc
$$;
comment on function countersign.moved_rows(uuid[], countersign.net_change[]) is
    'Rows whose key writes have changed: undone by an UPDATE of the key, so that what refers to them follows.';

-- The last argument is evaluated where `undo` is called: the search_path of the session, for the triggers and policies of the tables.
create function countersign.undo(
    writes uuid[], is_executing boolean default true, path text default pg_catalog.current_setting('search_path')
) returns json
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    single       countersign.net_change := case when is_executing then countersign.single_change(writes) end;
    net          countersign.net_change[];
    conflicts    json[];
    touched      integer[];
    moves        jsonb;
    depth        jsonb := '{}';
    t            countersign.tracked;
    level        record;
    kinds        text;
    kind         text;
    total        bigint;
    images       text[];
    matched      text[];
    disturbed    bigint;
    violation    text;
    broken_name  text;
    broken_code  text;
begin
    if single.relation is not null and countersign.restore_row(single, path) then
        return json_build_object('status', 'ok', 'rows', 1);
    end if;

    -- 1. Is there anything to undo, and is it all as the writes left it?
    net := array(select w from countersign.net_changes(writes) w);
    conflicts := countersign.refused_writes(writes);
    if conflicts is null then
        conflicts := countersign.undo_conflicts(writes, net, is_executing, path);
    end if;
    if cardinality(conflicts) > 0 then
        return json_build_object('status', 'conflict', 'conflicts', array_to_json(conflicts), 'rows', cardinality(net));
    end if;
    if not is_executing then
        return json_build_object('status', 'ok', 'rows', cardinality(net));
    end if;

    -- 2. Tables in the order of their foreign keys: parents are put back first and removed last.
    touched := array(select distinct w.shape from unnest(net) w);
    for pass in 1 .. least(cardinality(touched), 20) loop
        for level in
            select f.conrelid as child, max(coalesce((depth ->> f.confrelid::text)::int, 0)) + 1 as depth
            from pg_constraint f
            where f.contype = 'f' and f.conrelid <> f.confrelid
              and f.conrelid in (select k.relation from countersign.tracked k where k.shape = any (touched))
              and f.confrelid in (select k.relation from countersign.tracked k where k.shape = any (touched))
            group by f.conrelid
        loop
            depth := depth || jsonb_build_object(level.child::text, level.depth);
        end loop;
    end loop;
    if exists (select from unnest(net) w where w.before is null) and exists (select from unnest(net) w where w.after is null) then
        select jsonb_object_agg(m.relation || ' ' || m.key_now, m.relation || ' ' || m.key_before) into moves
        from countersign.moved_rows(writes, net) m;
    end if;

    -- 3. Apply. Foreign keys want a row back before what refers to it, and unique values want to be free first: one order or another.
    foreach kinds in array array['MIUD', 'MDUI', 'DMUI', 'UMDI', 'DIU', 'none'] loop
        if kinds = 'none' then
            return json_build_object('status', 'conflict', 'rows', cardinality(net), 'conflicts', json_build_array(json_build_object(
                'code', broken_code, 'constraint', broken_name, 'message', violation)));
        end if;
        -- Without M a moved row is deleted and inserted.
        if kinds = 'DIU' then
            moves := null;
        end if;
        begin
            total := 0;
            foreach kind in array string_to_array(kinds, null) loop
                for t in
                    select k.* from countersign.tracked k where k.shape = any (touched)
                    order by coalesce((depth ->> k.relation::text)::int, 0) * case when kind = 'D' then -1 else 1 end, k.relation
                loop
                    if kind = 'M' then
                        continue when moves is null;
                        select array_agg(b.before order by b.key), array_agg(w.after order by b.key) into images, matched
                        from unnest(net) w
                        join unnest(net) b on b.relation = w.relation
                             and moves ->> (w.relation || ' ' || w.key) = b.relation || ' ' || b.key
                        where w.relation = t.relation;
                    else
                        select array_agg(coalesce(w.before, w.after) order by w.key), array_agg(coalesce(w.after, w.before) order by w.key)
                        into images, matched
                        from unnest(net) w
                        where w.relation = t.relation and kind = case when w.before is null then 'D' when w.after is null then 'I' else 'U' end
                          and (moves is null or not (moves ? (w.relation || ' ' || w.key) or exists (
                               select from jsonb_each_text(moves) m where m.value = w.relation || ' ' || w.key)));
                    end if;
                    if images is not null then
                        total := total + countersign.apply_images(t, kind, images, matched, path);
                    end if;
                end loop;
            end loop;
            exit;
        exception
            when integrity_constraint_violation then
                get stacked diagnostics broken_name = constraint_name, violation = message_text;
                broken_code := case when sqlstate <> '23503' then 'constraint' when kind in ('D', 'M') then 'referenced' else 'parent_missing' end;
            when insufficient_privilege then
                return json_build_object('status', 'conflict', 'rows', cardinality(net), 'conflicts', json_build_array(json_build_object(
                    'code', 'not_permitted', 'table', t.name, 'message', sqlerrm)));
        end;
    end loop;

    -- 4. Triggers may have changed a row after it was put back (a total that a trigger keeps): these once more, in tables with triggers.
    for pass in 1 .. 2 loop
        disturbed := 0;
        for t in
            select k.* from countersign.tracked k where k.shape = any (touched)
            and exists (select from pg_trigger g join countersign.tracked o on g.tgrelid = o.relation and o.shape = any (touched)
                        where not g.tgisinternal and g.tgname not like '!countersign%')
            order by k.relation
        loop
            with w as materialized (
                select x.before, row_number() over () as n from unnest(net) x where x.relation = t.relation and x.before is not null
            )
            select array_agg(w.before), array_agg(r.image) into images, matched
            from countersign.current_rows(t, array(select w.before from w order by w.n), false, path) r
            join w on w.n = r.n
            where r.image is distinct from w.before
              and not countersign.same_image(t.shape, r.image, w.before, t.sensitive || t.maintained);
            if images is not null then
                disturbed := disturbed + countersign.apply_images(t, 'U', images, matched, path);
            end if;
        end loop;
        exit when disturbed = 0;
    end loop;
    return json_build_object('status', 'ok', 'rows', total);
end $$;
comment on function countersign.undo(uuid[], boolean, text) is
    'Undoes writes, all rows or none. {status: ok, rows} or {status: conflict, conflicts}; then nothing was changed. Without is_executing it '
    'only looks, and locks nothing.';

create function countersign.is_declared_undo(a countersign.attempt, part integer) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(a.tool_name = c.tool and a.params::jsonb @> c.params - 'idempotency_key', false)
    from countersign.record r
    cross join lateral (
        select coalesce(r.rollback -> 'undo_calls' -> (part - 1) ->> 'tool', case when part is null then r.rollback ->> 'undo_tool' end) as tool,
               coalesce(r.rollback -> 'undo_calls' -> (part - 1) -> 'params', case when part is null then r.rollback -> 'undo_params' end)::jsonb
               as params
    ) c
    where r.correlation_id = a.undo_of[1]
$$;
comment on function countersign.is_declared_undo(countersign.attempt, integer) is
    'Whether the call is the one by which the write said that it is undone, or that part of it.';

create function countersign.prove_inverse(writes uuid[], undos uuid[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    wrong  json;
begin
    select json_agg(json_build_object('code', 'side_effects', 'table', t.name, 'key', coalesce(d.key, u.key)::json,
               'columns', (select json_agg(json_build_object('name', c.name, 'to_restore', countersign.field_value(c.b), 'now', countersign.field_value(c.n)))
                           from unnest(t.columns, countersign.fields(d.before), countersign.fields(u.after)) c (name, b, n)
                           where c.b is distinct from c.n and c.name <> all (t.sensitive)),
               'message', case when d.relation is null then 'the undo changed a row that the write did not change'
                               when u.relation is null then 'the undo left the row as it was'
                               else 'something changed the row after it was restored' end))
    into wrong
    from countersign.net_changes(writes) d
    full join countersign.net_changes(undos) u on u.relation = d.relation and coalesce(u.key, '') = coalesce(d.key, '')
    join countersign.tracked t on t.shape = coalesce(d.shape, u.shape)
    -- The images themselves first: most rows need no look at their columns.
    where (u.before is distinct from d.after or u.after is distinct from d.before
           or u.secret_before is distinct from d.secret_after or u.secret_after is distinct from d.secret_before)
      and case when d.relation is null then not countersign.same_image(t.shape, u.before, u.after, t.maintained)
               when u.relation is null then not countersign.same_image(t.shape, d.after, d.before, t.maintained)
               else not (u.before is not distinct from d.after and u.secret_before is not distinct from d.secret_after
                         and countersign.same_image(t.shape, u.after, d.before, t.maintained)
                         and u.secret_after is not distinct from d.secret_before) end;
    if wrong is not null then
        raise exception 'the rows are not what they were before the write' using errcode = 'CS002', detail = wrong::text;
    end if;
end $$;
comment on function countersign.prove_inverse(uuid[], uuid[]) is
    'CS002 unless the recorded effects of undos are the exact inverse of what they undo, but for maintained columns and log tables.';

create function countersign.is_single_inverse(undone uuid[], undo uuid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    return cardinality(undone) = 1
       and (select count(*) from (select from countersign.effect e where e.correlation_id = any (undone || undo) limit 3) e) = 2
       and exists (select from countersign.effect d join countersign.effect u on u.correlation_id = undo
                   where d.correlation_id = undone[1] and d.relation = u.relation and d.key = u.key
                     and d.key_before is null and u.key_before is null and d.unchanged is null and u.unchanged is null
                     and (d.before, d.after, d.secret_before, d.secret_after)
                         is not distinct from (u.after, u.before, u.secret_after, u.secret_before));
end $$;
comment on function countersign.is_single_inverse(uuid[], uuid) is
    'Whether a write made one change, and its undo the exact inverse and nothing else: the most frequent case of `prove_inverse`.';

create function countersign.prove_undo(a countersign.attempt) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    part     integer := substring(a.idempotency_key from '/([0-9]{1,4})$');
    undos    uuid[] := array[a.correlation_id];
    undone   json;
begin
    if (select count(*) from countersign.record r
        where r.correlation_id = any (a.undo_of) and r.status = 'success' and (a.by_operator or r.account_id = a.account_id))
       <> cardinality(a.undo_of)
    then
        raise exception 'only successes of the same account can be undone' using errcode = 'CS002', detail = '[{"code": "not_permitted"}]';
    end if;
    select json_agg(json_build_object('code', 'already_reversed', 'write', countersign.describe_write(v.correlation_id),
                                      'changed_by', countersign.describe_write(v.reversed_by)))
    into undone from countersign.reversal v where v.correlation_id = any (a.undo_of);
    if undone is not null then
        raise exception 'the write was undone before' using errcode = 'CS002', detail = undone::text;
    end if;
    if part is not null then
        if not countersign.is_declared_undo(a, part) then
            raise exception 'the call is not part % of the undo that the write declares', part
                using errcode = 'CS002', detail = '[{"code": "not_permitted"}]';
        end if;
        -- The calls that end together see each other: whichever is the last one marks the write.
        perform from countersign.record r where r.correlation_id = a.undo_of[1] for no key update;
        insert into countersign.reversal_part (correlation_id, part, reversed_by) values (a.undo_of[1], part, a.correlation_id);
        if (select count(*) from countersign.reversal_part p where p.correlation_id = a.undo_of[1])
           < (select json_array_length(r.rollback -> 'undo_calls') from countersign.record r where r.correlation_id = a.undo_of[1])
        then
            return;
        end if;
        undos := array(select p.reversed_by from countersign.reversal_part p where p.correlation_id = a.undo_of[1]);
    end if;
    if part is not null or not countersign.is_single_inverse(a.undo_of, a.correlation_id) then
        if exists (select from countersign.effect e where e.correlation_id = any (a.undo_of)) then
            perform countersign.prove_inverse(a.undo_of, undos);
        end if;
        if part is null and not (cardinality(a.undo_of) = 1 and countersign.is_declared_undo(a, null))
           and exists (select from countersign.record r where r.correlation_id = any (a.undo_of) and r.rows_affected is distinct from 0
                       and not exists (select from countersign.effect e where e.correlation_id = r.correlation_id))
        then
            raise exception 'no effects of the write are on record, and the call is not the undo that it declares'
                using errcode = 'CS002', detail = '[{"code": "image_missing"}]';
        end if;
    end if;
    -- 23505 of reversal_pkey: it was undone meanwhile.
    insert into countersign.reversal (correlation_id, reversed_by) select w, a.correlation_id from unnest(a.undo_of) w;
end $$;
comment on function countersign.prove_undo(countersign.attempt) is
    'Marks the writes of an undo as reversed. CS002 unless its recorded effects are their exact inverse; without effects, unless it is the '
    'call that the write declares.';

create function countersign.changed_since(write uuid, path text default pg_catalog.current_setting('search_path')) returns json
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    effective_as  uuid := (countersign.reversal_state(write)).effective_as;
begin
    if not exists (select from countersign.effect e where e.correlation_id = effective_as) then
        return null;
    end if;
    return (select c from unnest(countersign.undo_conflicts(array[effective_as], array(select w from countersign.net_changes(array[effective_as]) w), false, path)) c
            where c ->> 'code' in ('changed_since', 'deleted_since', 'key_taken') limit 1);
end $$;
comment on function countersign.changed_since(uuid, text) is
    'Compares the rows of a write with what it left, with the rights of the caller: the first that is another now. Null: all are the same, or '
    'no effects are on record.';
