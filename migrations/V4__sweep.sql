-- Records whose server went away: nobody else would ever end them.

-- A record that is being executed is locked by its T2, and is passed over. One that is not locked has no T2 any more, or
-- none yet; ending it here fences a late one, whose claim will find it final. So nothing that is swept can still write.
create function countersign.sweep(older_than interval, most integer) returns setof uuid
language plpgsql as $$
declare
    abandoned uuid;
begin
    for abandoned in
        select a.correlation_id from countersign.mutation_audit a
        where a.status = 'pending' and a.created_at < clock_timestamp() - older_than
        order by a.created_at limit most for update skip locked
    loop
        perform countersign.finish_failure(abandoned, 'in_doubt_aborted', null,
            'the server went away before the write committed; nothing was written');
        return next abandoned;
    end loop;
end $$;
