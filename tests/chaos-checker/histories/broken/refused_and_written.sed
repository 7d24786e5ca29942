# A write was carried out that was answered as refused.
24s/"outcome":.*/"outcome":{"refused":{"code":"sql_error","receipt":"f9b419eb-34c1","retryable":false}}}}/
