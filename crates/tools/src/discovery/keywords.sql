select word, catcode <> 'U' as reserved from pg_catalog.pg_get_keywords()
