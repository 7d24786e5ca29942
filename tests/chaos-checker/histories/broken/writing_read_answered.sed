# A read whose statement writes was answered.
134s/"outcome":.*/"outcome":"read"}}/
