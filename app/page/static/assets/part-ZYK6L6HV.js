function r(e){return e.split("/").slice(1).map(l=>l.replaceAll("~1","/").replaceAll("~0","~"))}function t(e){return e.replaceAll("~","~0").replaceAll("/","~1")}export{r as a,t as b};
