/** Starts the page: every element's module, then the source, the place and the keys. */

import {} from './parts/virtual-list.js';
import {} from './charts/overview.js';
import {} from './charts/river.js';
import {} from './charts/presence.js';
import {} from './panes/head.js';
import {} from './panes/transcript.js';
import {} from './panes/sent.js';
import {} from './panes/drawer.js';
import {} from './screens/sessions.js';
import {} from './screens/session.js';
import {} from './screens/lost.js';
import {} from './screens/compare.js';
import {} from './screens/search.js';
import {} from './screens/integrity.js';
import {} from './screens/help.js';
import {} from './screens/app.js';
import { startKeys } from './keys.js';
import { startPlace } from './place.js';
import { embeddedSource } from './source/embedded.js';
import { serverSource } from './source/server.js';
import { startState } from './state.js';

// An exported file holds its timeline; a page from the server asks for it.
const isFile = document.getElementById('timeline') !== null;
startPlace({ hash: isFile });
startState(isFile ? embeddedSource() : serverSource());
startKeys();
