/** Text files that the bundler puts in as strings. */
declare module '*.css' {
  const text: string;
  export default text;
}
