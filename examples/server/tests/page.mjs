// SPDX-License-Identifier: MIT
//
// page.mjs URL CHROMIUM [PICTURE]: the live page in a browser without a screen. Prompts are typed
// and run, their texts come, blocks are shown as held and shared, and say who holds them. With
// PICTURE, the page is saved while prompts run.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

const [url, executablePath, picture] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
const colorScheme = process.env.SCHEME ?? 'light';
const page = await browser.newPage({ viewport: { width: 1180, height: 900 }, colorScheme });
const errors = [];
page.on('pageerror', error => errors.push(error.message));
page.on('console', message => { if (message.type() === 'error') errors.push(message.text()); });

await page.goto(url);
await page.waitForSelector('.map i');
const areas = page.locator('textarea');
await areas.nth(1).fill(await areas.nth(0).inputValue() + ' an old mill');
// Prompts that come at once find nothing of each other: the beginning that they share is there first.
await fetch(`${url}/v1/completions`, { method: 'POST', body: JSON.stringify(
  { prompt: await areas.nth(0).inputValue(), max_tokens: 1 }) });
await page.fill('#max', '900');
await page.fill('#temperature', '0.8');
// The map moves down while texts grow, so cell and mouse are brought together in one go. A story may
// have ended before a slow browser looks: then all run again.
const hover = () => page.waitForFunction(() => {
  const cell = document.querySelector('.map i.s'), tip = document.querySelector('#tip');
  if (!cell || !document.querySelector('#requests tr')) return '';
  const { x, y } = cell.getBoundingClientRect();
  cell.dispatchEvent(new MouseEvent('mousemove', { bubbles: true, clientX: x + 5, clientY: y + 5 }));
  return tip.style.display === 'block' && tip.textContent.includes('request') && tip.textContent;
}, null, { timeout: 4000 }).then(found => found.jsonValue(), () => null);
let tip = null;
for (let attempt = 0; attempt < 10 && !tip; attempt++) {
  await page.click('#all');
  tip = await hover();
  if (tip && picture) {
    await page.waitForTimeout(200);
    await page.screenshot({ path: picture, fullPage: true });
  }
  await page.waitForFunction(() => [...document.querySelectorAll('.answer')]
    .some(answer => answer.textContent.length > 20));
  if (!tip) await page.click('#stop');
}
assert.ok(tip, 'no block was seen shared');
assert.match(tip, /^block \d+: (shared|held)/);
assert.match(tip, /request \d+: \d+ of \d+ tokens/);

await page.click('#stop');
await page.waitForFunction(() => document.querySelectorAll('#requests tr').length === 0);
await page.waitForFunction(() => !document.querySelector('.map i.h, .map i.s'));
assert.ok(await page.locator('.map i.c').count() > 0);
assert.deepEqual(errors, []);
await browser.close();
console.log('ok     the page in a browser');
