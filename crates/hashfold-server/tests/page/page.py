"""The admin page in headless Chromium: signing in, publishing, rolling back, pinning, comparing, forged forms.
Usage: page.py HASHFOLD SCREENSHOTS, a path of the command and a folder for pictures of all pages."""

import hashlib
import secrets
import shutil
import sys
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent / "clients"))
from scene import Home, check

OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def serve(home, token):
    """Starts a server with an operator. Returns the address of its page."""
    hashed = hashlib.sha256(token.encode()).hexdigest()
    (home.path / "page.toml").write_text(
        "listen = ['127.0.0.1:0']\nhttp-listen = ['127.0.0.1:0']\n"
        "cluster = 'emulated'\nadmin.audit = 'audit.jsonl'\n"
        "[data.people]\npath = 'people'\n[user.default]\nspace = 'people'\n"
        f"[admin.token.eve]\nsha256 = '{hashed}'\nrole = 'operator'\n"
    )
    home.serve("--config", "page.toml")
    return home.http[-1]


def change(page, link, reason, confirm="people"):
    """Follows a link to the form of a change, fills it in, and sends it."""
    page.get_by_role("link", name=link).first.click()
    page.get_by_label("Reason").fill(reason)
    page.get_by_label("Name of the store").fill(confirm)
    page.get_by_role("main").get_by_role("button").click()


def current(page):
    return page.locator("tr.current td").first.inner_text()


def main():
    hashfold, pictures = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2])
    pictures.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    home, token = Home(hashfold), secrets.token_hex(32)
    try:
        home.publish(2)
        home.publish(3)
        address = serve(home, token)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=OPTIONS)
            page = browser.new_page(viewport={"width": 1200, "height": 800})
            errors = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("console", lambda message: message.type == "error" and errors.append(message.text))
            shoot = lambda name: page.screenshot(path=pictures / f"{name}.png")
            sign_in(page, address, token, shoot)
            versions(page, address, shoot)
            forged(page, address)
            for name in ("cluster", "audit"):
                page.goto(f"{address}/{name}")
                shoot(name)
            expect(page.locator("tbody tr").first).to_contain_text("not for you")
            page.get_by_role("button", name="Sign out").click()
            expect(page.get_by_label("Token")).to_be_visible()
            # Statuses of refused forms are messages of the console, too.
            unexpected = [error for error in errors if "status of 4" not in error]
            check("errors in the console", unexpected, [])
            browser.close()
    finally:
        home.close()
    print(f"passed; pictures are in {pictures}")


def sign_in(page, address, token, shoot):
    page.goto(address)
    page.get_by_label("Token").fill("guess")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("This token is not known")).to_be_visible()
    shoot("sign-in")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Data sets")).to_be_visible()
    shoot("overview")


def versions(page, address, shoot):
    page.get_by_role("link", name="people", exact=True).click()
    check("current", current(page), "3")
    change(page, "Publish…", "tested", confirm="peple")
    expect(page.get_by_text("Type the name of the store")).to_be_visible()
    shoot("change")
    page.get_by_label("Name of the store").fill("people")
    page.get_by_role("main").get_by_role("button").click()
    check("published", current(page), "2")
    change(page, "Roll back…", "wrong after all")
    check("rolled back", current(page), "3")
    change(page, "Pin…", "for the audit")
    expect(page.get_by_text("pinned", exact=True)).to_be_visible()
    page.get_by_label("From").fill("1")
    page.get_by_label("to", exact=True).fill("3")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_text("100.0 %")).to_be_visible()
    shoot("store")


def forged(page, address):
    """A form with the secret of another session, and one of another site."""
    page.goto(f"{address}/change?store=people&action=rollback")
    page.locator("form.change input[name=csrf]").evaluate("it => it.value = 'guess'")
    page.get_by_label("Reason").fill("not for me")
    page.get_by_label("Name of the store").fill("people")
    page.get_by_role("main").get_by_role("button").click()
    expect(page.get_by_text("Not allowed")).to_be_visible()
    page.goto(f"{address}/store/people")
    check("after a forged form", current(page), "3")
    change(page, "Unpin…", "not for you")
    check("after unpinning", page.get_by_text("pinned", exact=True).count(), 0)


main()
