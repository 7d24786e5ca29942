# A proposal was carried out on which nobody has decided.
177a\
{"record":{"id":507,"receipt":"aaaaaaaa-aaaa","at":15600,"tool":"add_approved","arguments":{"text":"approved-7"},"status":"success","proposal":"1b63b1b3-2c04","data":{"id":45},"effects":[{"position":690,"table":"chaos.approved","key":"45","after":"aaaaaa"}]}}
224a\
{"leaf":{"index":47,"kind":"record","record":507,"receipt":"aaaaaaaa-aaaa","status":"success"}}
231a\
{"row":{"table":"chaos.approved","key":"45","text":"approved-7","image":"aaaaaa"}}
233s/.*/{"end":{"records":39,"strays":0,"leaves":48,"rows":9}}/
