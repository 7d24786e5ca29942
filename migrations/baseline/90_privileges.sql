-- PostgreSQL lets everybody call a new function. `init` gives every object to countersign_owner and grants by its own list.
do $$
declare
    signature  text;
begin
    for signature in
        select p.oid::pg_catalog.regprocedure::text from pg_catalog.pg_proc p
        where p.pronamespace = 'countersign'::pg_catalog.regnamespace
    loop
        execute pg_catalog.format('revoke all on function %s from public', signature);
    end loop;
end $$;

-- Secrets. A grant on these tables, or membership in pg_read_all_data, shows no row: only their owner is past row level security,
-- and with it the functions that belong to the owner.
alter table countersign.reader_login   enable row level security;
alter table countersign.state_key      enable row level security;
alter table countersign.secret_key     enable row level security;
alter table countersign.erasure        enable row level security;

-- Tables without a primary key: of a published one (FOR ALL TABLES) rows are deleted only if the WAL can name them.
alter table countersign.effect      replica identity full;
alter table countersign.checkpoint  replica identity full;

select countersign.note_event('upgrade', array['version', '1']);
