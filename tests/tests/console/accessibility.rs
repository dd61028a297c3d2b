//! What every page of the console must be for people who do not see it well, or use no mouse.

use serde_json::{Value, json};

use crate::ConsoleSession;

/// Texts whose contrast with their background is less than WCAG 2.2 asks for (level AA).
const LOW_CONTRAST: &str = r"(() => {
    const parse = color => color.match(/[\d.]+/g).map(Number);
    const part = value => { const it = value / 255; return it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4 };
    const luminance = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    const ground = element => {
        for (let it = element; it; it = it.parentElement) {
            const color = parse(getComputedStyle(it).backgroundColor);
            if ((color[3] ?? 1) === 1) return color;
        }
        return [255, 255, 255];
    };
    const low = [];
    for (const it of document.querySelectorAll('body *')) {
        const text = [...it.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join('');
        if (!text || it.closest('svg, :disabled') || !it.checkVisibility()) continue;
        const style = getComputedStyle(it);
        const [a, b] = [luminance(parse(style.color)), luminance(ground(it))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
        if (ratio < (isLarge ? 3 : 4.5)) low.push(`${ratio.toFixed(2)} ${it.tagName}.${it.className} ${text.slice(0, 40)}`);
    }
    return low;
})()";

/// Controls without a name for screen readers, elements with the same id, and pages without landmarks.
const NAMELESS: &str = r"(() => {
    const found = [];
    for (const it of document.querySelectorAll('a, button, input:not([type=hidden]), select, textarea')) {
        const label = it.labels?.[0]?.textContent ?? '';
        const name = it.getAttribute('aria-label') ?? (label || it.textContent);
        if (!name.trim() && it.getAttribute('aria-hidden') !== 'true') found.push(it.outerHTML.slice(0, 120));
    }
    const ids = [...document.querySelectorAll('[id]')].map(it => it.id);
    found.push(...ids.filter((id, at) => ids.indexOf(id) !== at).map(id => `twice: #${id}`));
    for (const needed of ['main', 'header', 'nav[aria-label]', 'h1', '[role=status]']) {
        if (!document.querySelector(needed)) found.push(`missing: ${needed}`);
    }
    return found;
})()";

/// Asserts that the open page can be read and used, in light and in dark mode.
pub(crate) async fn assert_accessible(session: &mut ConsoleSession, page: &str) {
    for scheme in ["dark", "light"] {
        session.browser.set_viewport(1280, 900, scheme).await;
        let low = session.browser.eval(LOW_CONTRAST).await;
        assert_eq!(low, json!([]), "{page}, {scheme}: low contrast");
    }
    let nameless = session.browser.eval(NAMELESS).await;
    assert_eq!(nameless, json!([]), "{page}: controls and landmarks");
}

/// Tab reaches all controls of the page.
pub(crate) async fn assert_keyboard(session: &mut ConsoleSession, page: &str) {
    let browser = &mut session.browser;
    browser
        .eval("document.activeElement.blur(), window.scrollTo(0, 0)")
        .await;
    let controls = "[...document.querySelectorAll('a, button, input, select, textarea, summary')]\
                    .filter(it => it.checkVisibility() && !it.disabled && it.tabIndex >= 0)";
    let count = browser.eval(&format!("{controls}.length")).await;
    let count = count.as_u64().unwrap_or_default();
    let mut reached = Vec::new();
    // Regions that scroll are reached as well.
    for _ in 0..3 * count {
        browser.press_key("Tab", 9).await;
        let at = format!("{controls}.indexOf(document.activeElement)");
        if let Some(at) = browser.eval(&at).await.as_u64() {
            if reached.contains(&at) {
                break;
            }
            reached.push(at);
        }
    }
    let expected: Vec<u64> = (0..count).collect();
    let missing: Vec<_> = expected.iter().filter(|at| !reached.contains(at)).collect();
    let names = format!("{controls}.map(it => it.outerHTML.slice(0, 80))");
    let names: Value = browser.eval(&names).await;
    assert!(
        missing.is_empty(),
        "{page}: Tab does not reach {missing:?} of {names:#}"
    );
}
