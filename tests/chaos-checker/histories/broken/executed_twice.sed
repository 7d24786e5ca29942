# An approved proposal was carried out twice.
177a\
{"record":{"id":507,"receipt":"aaaaaaaa-aaaa","at":15600,"tool":"add_approved","arguments":{"text":"approved-2, again"},"status":"success","proposal":"97a11f06-bd08","data":{"id":45},"effects":[{"position":690,"table":"chaos.approved","key":"45","after":"aaaaaa"}]}}
224a\
{"leaf":{"index":47,"kind":"record","record":507,"receipt":"aaaaaaaa-aaaa","status":"success"}}
231a\
{"row":{"table":"chaos.approved","key":"45","text":"approved-2, again","image":"aaaaaa"}}
233s/.*/{"end":{"records":39,"strays":0,"leaves":48,"rows":9}}/
