// Asks a server through clients that others wrote: node clients.mjs URL
import { libreTranslate } from "libretranslate-ts";
import translate from "translate";

const [url] = process.argv.slice(2);

libreTranslate.setApiEndpoint(url);
const text = await libreTranslate.translate("ein kleiner Hund.", "de", "en");
const refused = await libreTranslate.translate("a dog", "en", "de");

translate.engine = "libre";
translate.url = `${url}/translate`;
const other = await translate("Die Lampe.\n\nEin Hund.", { from: "de", to: "en" });

console.log(JSON.stringify({ text, refused, other }));
