# Two entries of the log are in the wrong order.
216s/.*/{"leaf":{"index":38,"kind":"record","record":400,"receipt":"6054e67e-875b","status":"success"}}/
217s/.*/{"leaf":{"index":39,"kind":"record","record":397,"receipt":"46ed46f9-ad0f","status":"success"}}/
