//! Certificates for servers of tests.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// An authority of a test's own, and the certificates that it gave, in a folder that goes with the value. Made by
/// `openssl`.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
}

/// The files of a certificate, PEM both.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate.
    pub pem: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// `openssl x509` begins every certificate now; `openssl ca` takes both dates, and wants this.
const CA: &str = "[ca]\ndefault_ca = here\n[here]\ndatabase = index\nrand_serial = yes\nnew_certs_dir = .\ndefault_md = sha256\n\
                  policy = any\n[any]\ncommonName = supplied\n";

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

impl Authority {
    /// A new one of this name, good for two days. Two of one name are strangers all the same.
    ///
    /// # Panics
    /// Where there is no `openssl`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let folder = TempDir::with_prefix("semel-authority-").expect("there is room for a temporary folder");
        openssl(folder.path(), &format!("req -x509 {KEY} -keyout ca.key -out ca.pem -days 2 -subj /CN={name}"));
        Self { folder }
    }

    /// Its own certificate, PEM: whoever has it believes those that it gave.
    #[must_use]
    pub fn pem(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// What it says of itself, as a server's: a certificate that nobody else signed.
    #[must_use]
    pub fn itself(&self) -> Certificate {
        self.files("ca")
    }

    /// A certificate for `names` as `openssl` writes them (`DNS:localhost,IP:127.0.0.1`), good for two days. `file` names
    /// its files.
    ///
    /// # Panics
    /// Where there is no `openssl`, or it does not understand the names.
    #[must_use]
    pub fn certify(&self, file: &str, names: &str) -> Certificate {
        self.ask(file, names);
        let sign = format!("x509 -req -in {file}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {file}.pem");
        openssl(self.folder.path(), &format!("{sign} -days 2 -extfile names"));
        self.files(file)
    }

    /// The same, good for the first day of 2020.
    ///
    /// # Panics
    /// As [`certify`](Self::certify).
    #[must_use]
    pub fn certify_past(&self, file: &str, names: &str) -> Certificate {
        self.ask(file, names);
        self.write("index", "");
        self.write("ca.cnf", CA);
        let sign = format!("ca -batch -notext -config ca.cnf -cert ca.pem -keyfile ca.key -in {file}.csr");
        let time = "-startdate 20200101000000Z -enddate 20200102000000Z";
        openssl(self.folder.path(), &format!("{sign} -out {file}.pem {time} -extfile names"));
        self.files(file)
    }

    fn ask(&self, file: &str, names: &str) {
        openssl(self.folder.path(), &format!("req {KEY} -keyout {file}.key -out {file}.csr -subj /CN={file}"));
        self.write("names", &format!("subjectAltName={names}\n"));
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.folder.path().join(file), text).expect("the folder can be written");
    }

    fn files(&self, file: &str) -> Certificate {
        let at = |end: &str| self.folder.path().join(format!("{file}.{end}"));
        Certificate { pem: at("pem"), key: at("key") }
    }
}

fn openssl(folder: &Path, args: &str) {
    let done = Command::new("openssl").args(args.split(' ')).current_dir(folder).output().expect("openssl is there");
    assert!(done.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&done.stderr));
}
