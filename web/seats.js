// The seats of an event: event.js loads this file when its user becomes ACTIVE.
