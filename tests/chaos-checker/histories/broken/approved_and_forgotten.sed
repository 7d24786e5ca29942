# A proposal was approved, and never carried out.
110s/e3e71927-2a51/1b63b1b3-2c04/
109s/e3e71927-2a51/1b63b1b3-2c04/
119s/1b63b1b3-2c04/e3e71927-2a51/
168s/"proposal":"e3e71927-2a51",//
