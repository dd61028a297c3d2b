// Keeps the fragment of the address, so that the page after the login gets it: browsers pass it on with a redirect.
const form = document.querySelector("form");
if (location.hash) form.action += location.hash;
