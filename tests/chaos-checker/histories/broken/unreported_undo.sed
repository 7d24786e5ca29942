# A command says that it has undone nothing, and a record says that it has.
37s/"undone":\["ebbecfa0-9ea6"\],//
