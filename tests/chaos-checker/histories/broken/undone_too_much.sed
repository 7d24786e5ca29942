# A plan has deleted a row of a write that it was not about.
145s/"effects":\[/&{"position":87,"table":"chaos.entry","key":"33","before":"aaaaaa"},/
