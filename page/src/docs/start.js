// A file of its own, as the page's policy allows no script inside of it.
window.SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href,
  dom_id: "#docs",
  deepLinking: true,
  validatorUrl: null,
});
