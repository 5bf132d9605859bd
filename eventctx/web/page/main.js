/** Starts the page: every screen's module, then the keys, the place and the source. */

import {} from './screens/sessions.js';
import {} from './screens/session.js';
import {} from './screens/lost.js';
import {} from './screens/compare.js';
import {} from './screens/search.js';
import {} from './screens/integrity.js';
import {} from './screens/app.js';
import { h } from './core/element.js';
import { startKeys } from './core/keys.js';
import { startPlace } from './core/place.js';
import { embeddedSource } from './source/embedded.js';
import { serverSource } from './source/server.js';
import { startState } from './core/state.js';

// An exported file holds its timeline; a page from the server asks for it.
const isFile = document.getElementById('timeline') !== null;
startKeys();
startPlace({ hash: isFile });
startState(isFile ? embeddedSource() : serverSource());
// Last: every element is defined, and nothing is made before what it reads is there.
document.body.append(h('ctx-app'));
