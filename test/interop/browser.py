"""Pages in Chromium, driven through a pipe, with nothing but Python's own library.

  browser.py [--shots DIR] PAGE.html...        a page may also be an address, http://127.0.0.1:PORT/

Each page is opened at 360 and 1600 pixels, light and dark, with scripts off, and printed. What must hold: no message on the console, no request but for the page
itself, nothing wider than the window, no two labels of an axis on each other, text with a contrast of at least 4.5:1 and lines of 3:1, a name for every
picture. And a copy of the page into which a script and a picture from elsewhere were smuggled runs the one and asks for the other in vain.
Prints a line for each page and what is wrong; exit status 0, 1, or 77 where there is no Chromium."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

PATIENCE = 120  # seconds
NAMES = "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"

LOOK = r"""(() => {
  const wrong = [], near = (a, b) => Math.abs(a - b) < 2;
  const parse = c => { const m = c.match(/[\d.]+/g); return m ? m.map(Number) : null };
  const light = c => { const f = c.slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                       return .2126 * f[0] + .7152 * f[1] + .0722 * f[2] };
  const contrast = (a, b) => { const x = light(a), y = light(b); return (Math.max(x, y) + .05) / (Math.min(x, y) + .05) };
  const paper = parse(getComputedStyle(document.body).backgroundColor);
  // what a text stands on: its cell may have a colour of its own, through which the paper shows
  const ground = e => { const b = parse(getComputedStyle(e).backgroundColor), a = b.length > 3 ? b[3] : 1;
                        return e instanceof SVGElement || a == 0 ? paper : b.slice(0, 3).map((v, i) => v * a + paper[i] * (1 - a)) };
  const seen = e => { const r = e.getBoundingClientRect(); return r.width + r.height > 0 && getComputedStyle(e).visibility == 'visible' };
  let least = 99, leastLine = 99, charts = 0;
  document.querySelectorAll('details').forEach(d => d.open = true);
  if (document.documentElement.scrollWidth > innerWidth) wrong.push('the page is ' + document.documentElement.scrollWidth + ' wide, the window ' + innerWidth);
  for (const e of document.querySelectorAll('body *')) {
    const text = [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()), s = getComputedStyle(e);
    if (text && seen(e) && !['title', 'desc', 'style'].includes(e.tagName.toLowerCase())) {
      const c = contrast(parse(e instanceof SVGElement ? s.fill : s.color), ground(e));
      least = Math.min(least, c);
      if (c < 4.5) wrong.push('contrast ' + c.toFixed(2) + ' of the text "' + e.textContent.slice(0, 30) + '"');
      const r = e.getBoundingClientRect();
      if (e instanceof SVGElement && (r.left < -0.5 || r.right > innerWidth + 0.5)) wrong.push('the label "' + e.textContent + '" leaves the window');
    }
    if (['path', 'line', 'circle', 'rect'].includes(e.tagName) && !e.classList.contains('g') && !e.hasAttribute('fill-opacity') && !e.classList.contains('e')) {
      const colour = s.stroke != 'none' && !e.classList.contains('a') ? s.stroke : s.fill;
      if (colour == 'none') continue;
      const c = contrast(parse(colour), paper);
      leastLine = Math.min(leastLine, c);
      if (c < 3) wrong.push('contrast ' + c.toFixed(2) + ' of a line ' + colour);
    }
  }
  for (const svg of document.querySelectorAll('svg.p')) {
    charts++;
    const named = (svg.getAttribute('aria-labelledby') || '').split(' ').map(i => document.getElementById(i));
    if (svg.getAttribute('role') != 'img' || named.length != 2 || !named.every(n => n && n.textContent.trim())) wrong.push('a picture without a name');
    const at = [...svg.querySelectorAll(':scope > text')].filter(seen).map(t => [t.getBoundingClientRect(), t.textContent]);
    for (let i = 0; i < at.length; i++) for (let k = 0; k < i; k++) {
      const a = at[i][0], b = at[k][0];
      if (a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom) wrong.push('"' + at[i][1] + '" is on "' + at[k][1] + '"');
    }
  }
  for (const img of document.images)
    if (!img.alt.trim() || !img.complete || img.naturalWidth == 0) wrong.push('a picture that has no name or is not shown: ' + img.src.slice(0, 60));
  if (document.querySelector('script,[onload],[onclick],[onerror],iframe,object,embed,link:not([href="data:,"])')) wrong.push('a script, or something that loads');
  const height = document.documentElement.scrollHeight;
  document.querySelectorAll('details').forEach(d => d.open = false);
  return {wrong, least, leastLine, charts, height};
})()"""


class Browser:
    def __init__(self, program):
        self.home = tempfile.mkdtemp(prefix="lockstep-chromium-")
        down, self.to = os.pipe()
        self.back, up = os.pipe()

        def wire():  # Chromium reads 3 and writes 4
            a, b = os.dup(down), os.dup(up)
            os.dup2(a, 3), os.dup2(b, 4)

        flags = ["--no-sandbox", "--headless", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir=" + self.home,
                 "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--no-first-run", "--disable-dev-shm-usage", "about:blank"]
        self.process = subprocess.Popen([program] + flags, preexec_fn=wire, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(down), os.close(up)
        self.rest, self.number, self.events = b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Log", "Network", "Audits", "Accessibility":
            self.call(domain + ".enable")

    def receive(self):
        while b"\0" not in self.rest:
            if not select.select([self.back], [], [], PATIENCE)[0]:
                raise SystemExit("Chromium said nothing for %d s" % PATIENCE)
            more = os.read(self.back, 1 << 16)
            if not more:
                raise SystemExit("Chromium ended")
            self.rest += more
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            got = self.receive()
            if got.get("id") == self.number:
                if "error" in got:
                    raise SystemExit("%s: %s" % (method, got["error"]))
                return got["result"]
            self.events.append(got)

    def wait(self, method):
        for e in self.events:
            if e.get("method") == method:
                return
        while True:
            got = self.receive()
            self.events.append(got)
            if got.get("method") == method:
                return

    def open(self, url, width, dark, media=""):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events = []
        self.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def look(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in got:
            raise SystemExit(str(got["exceptionDetails"])[:500])
        return got["result"].get("value")

    def said(self, url):
        """What happened since the page was opened that should not."""
        self.look("0")  # so that all events before are here
        for e in self.events:
            p, m = e.get("params", {}), e.get("method")
            asked = p["request"]["url"].split("#")[0] if m == "Network.requestWillBeSent" else url
            inside = asked == "data:," or asked.startswith("data:image/png;base64,")  # no icon; a picture in the page
            if asked != url and not inside:
                yield "a request for " + p["request"]["url"][:80]
            if m == "Runtime.consoleAPICalled" or m == "Runtime.exceptionThrown":
                yield "the console: " + json.dumps(p)[:200]
            if m == "Log.entryAdded":
                yield "the log: " + p["entry"]["text"][:200]
            if m == "Audits.issueAdded":
                yield "an issue: " + p["issue"]["code"]

    def close(self):
        self.session = None
        os.write(self.to, json.dumps({"id": 1 << 20, "method": "Browser.close"}).encode() + b"\0")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for _ in range(20):  # its children may still write
            shutil.rmtree(self.home, ignore_errors=True)
            if not os.path.exists(self.home):
                break
            time.sleep(0.1)


def shoot(b, path, width, height):
    b.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    data = b.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
    with open(path, "wb") as f:
        f.write(base64.b64decode(data))


def address(path):
    return path if path.startswith("http://127.0.0.1:") else "file://" + os.path.abspath(path)


def check(b, path, shots):
    url, wrong, least, line = address(path), [], 99, 99
    b.call("Emulation.setScriptExecutionDisabled", value=True)
    for width in 360, 1600:
        for dark in False, True:
            name = "%d %s: " % (width, "dark" if dark else "light")
            b.open(url, width, dark)
            found = b.look(LOOK)
            wrong += [name + w for w in found["wrong"]] + [name + w for w in b.said(url)]
            least, line = min(least, found["least"]), min(line, found["leastLine"])
            if shots:
                stem = os.path.basename(os.path.dirname(os.path.abspath(path))) + "-" + os.path.basename(path)[:-5]
                height = b.look("document.documentElement.scrollHeight")
                shoot(b, "%s/%s-%d-%s.png" % (shots, stem, width, "dark" if dark else "light"), width, height)
    tree = b.call("Accessibility.getFullAXTree")["nodes"]
    images = [n for n in tree if n.get("role", {}).get("value") in ("img", "image") and not n.get("ignored")]
    if len(images) < found["charts"] or not all(n.get("name", {}).get("value") for n in images):
        wrong.append("a screen reader finds %d named pictures of %d" % (sum(bool(n.get("name", {}).get("value")) for n in images), found["charts"]))
    b.open(url, 1000, True, "print")
    wrong += ["print: " + w for w in b.look(LOOK)["wrong"]]
    if len(b.call("Page.printToPDF")["data"]) < 1000:
        wrong.append("print: an empty document")
    return wrong, found["charts"], least, line


def smuggle(b, path):
    """The policy in the page holds even if something got into it."""
    with urllib.request.urlopen(address(path)) as f:
        page = f.read().decode()
    evil = '<script>document.title="taken"</script><img src="https://example.org/x.png" onerror="document.title=\'taken\'"></main>'
    with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as f:
        f.write(page.replace("</main>", evil, 1))
        f.flush()
        b.call("Emulation.setScriptExecutionDisabled", value=False)
        b.open("file://" + f.name, 1000, False)
        said = list(b.said("file://" + f.name))
        if b.look("document.title") == "taken":
            return ["a script that was put into the page runs"]
        if not any("Content Security Policy" in s for s in said):
            return ["the policy stopped nothing: " + "; ".join(said)]
    return []


def main():
    args, shots = sys.argv[1:], None
    if args[:1] == ["--shots"]:
        shots, args = args[1], args[2:]
    program = next((p for p in map(shutil.which, NAMES) if p), None)
    if not program:
        print("there is no Chromium")
        return 77
    b, failed = Browser(program), 0
    try:
        for path in args:
            wrong, charts, least, line = check(b, path, shots)
            wrong += smuggle(b, path)
            failed += bool(wrong)
            print("%s: %d charts, contrast of text %.2f, of lines %.2f, %s" % (path, charts, least, line, "%d faults" % len(wrong) if wrong else "well"))
            for w in sorted(set(wrong))[:30]:
                print("  " + w)
    finally:
        b.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
