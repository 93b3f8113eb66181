// Package config turns YAML into structs, strictly, and watches the file it came from.
//
// Strict means: an unknown key, a duplicate, a wrong type, a number without its unit, an empty value, an anchor or an
// alias is an error, and no error is repaired. Each error is one line that an editor can jump to:
//
//	weir.yaml:7:12: services[0].vips[0].port: "70000" is not a port; write 1 to 65535, a range such as 5000-5999, or any
//
// Decode reads any struct with `yaml` tags; types of its own decide through encoding.TextUnmarshaler. The Document it
// returns maps paths back to lines, so that checks which come later (lb.Compile, a Validate) report positions too.
// File reads a file and reports its changes; it watches the directory, so an atomic rename and a ConfigMap volume's
// swapped symlink are seen.
//
//	spec, document, err := config.Decode[lb.Spec]("weir.yaml", text)
//	err = document.Errorf("services[0].mode", "…; …")
//
// DecodeForeign reads the files of another program, whose unknown keys are warnings. Our own are always strict.
//
// Limits: MaxBytes per document, MaxJSONBytes for one in JSON, maxDepth levels, one document per file.
package config
