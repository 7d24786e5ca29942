select word, pg_catalog.upper(word) as shown, catcode <> 'U' as reserved from pg_catalog.pg_get_keywords()
