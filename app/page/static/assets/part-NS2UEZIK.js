function n(){return null}export{n as Code};
