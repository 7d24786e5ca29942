# Every call with this text was refused, and its row is there.
42s/"outcome":.*/"outcome":{"refused":{"code":"sql_error","retryable":false}}}}/
48s/"outcome":.*/"outcome":{"refused":{"code":"sql_error","retryable":false}}}}/
53s/"outcome":.*/"outcome":{"refused":{"code":"sql_error","retryable":false}}}}/
