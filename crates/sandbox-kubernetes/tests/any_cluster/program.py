"""The main process of test sandboxes: does what it is told over HTTP, and writes nothing else to its log."""

import http.server
import os
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.asked() == "/alive":
            return self.answer(b"alive")
        with open(os.path.join(os.environ["WORKSPACE"], "file.txt"), "rb") as file:
            self.answer(file.read())

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.asked() == "/print":
            print(body.decode(), flush=True)
        elif self.asked() == "/write":
            with open(os.path.join(os.environ["WORKSPACE"], "file.txt"), "wb") as file:
                file.write(body)
        else:
            # After the answer.
            threading.Timer(0.3, os._exit, [3]).start()
        self.answer(b"")

    def asked(self):
        return self.path.partition("?")[0]

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


# A pod of the simulated cluster has an address of this machine.
http.server.ThreadingHTTPServer((os.environ.get("POD_IP", ""), 8000), Handler).serve_forever()
