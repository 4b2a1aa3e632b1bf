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
await areas.nth(1).fill(await areas.nth(0).inputValue() + ' a "bird" & <b>a fish</b>');
await page.fill('#max', '900');
await page.fill('#temperature', '0.8');
await page.click('#all');
await page.waitForSelector('#requests tr');
await page.waitForFunction(() => [...document.querySelectorAll('.answer')]
  .every(answer => answer.textContent.length > 150));
await page.waitForSelector('.map i.s');
await page.hover('.map i.s >> nth=0');
await page.waitForFunction(() => document.querySelector('#tip').style.display === 'block');
const tip = await page.textContent('#tip');
assert.match(tip, /^block \d+: (shared|held)/);
assert.match(tip, /request \d+: \d+ of \d+ tokens/);
if (picture) await page.screenshot({ path: picture, fullPage: true });

await page.click('#stop');
await page.waitForFunction(() => document.querySelectorAll('#requests tr').length === 0);
await page.waitForFunction(() => !document.querySelector('.map i.h, .map i.s'));
assert.ok(await page.locator('.map i.c').count() > 0);
assert.deepEqual(errors, []);
await browser.close();
console.log('ok     the page in a browser');
